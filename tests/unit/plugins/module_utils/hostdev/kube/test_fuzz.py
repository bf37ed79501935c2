"""A few hundred inputs of each property; `make soak` tries a million."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.tests.fuzz.properties import PROPERTIES, tried

FEW = {"machine": 60}


@pytest.mark.parametrize("name", PROPERTIES)
def test_whatever_is_said_nothing_breaks(name: str) -> None:
    tried(name, FEW.get(name, 300))()

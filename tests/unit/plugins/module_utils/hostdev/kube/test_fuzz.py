"""A few hundred inputs of each property; `make soak` tries a million."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.tests.fuzz.properties import PROPERTIES
from hypothesis import HealthCheck, given, settings

FEW = {"machine": 60}


@pytest.mark.parametrize("name", PROPERTIES)
def test_whatever_is_said_nothing_breaks(name: str) -> None:
    holds, inputs = PROPERTIES[name]
    tried = settings(max_examples=FEW.get(name, 300), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    tried(given(inputs)(holds))()

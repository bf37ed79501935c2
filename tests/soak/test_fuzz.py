"""A million inputs (HOSTDEV_FUZZ others): none ends the process, none yields a path outside /dev."""

from __future__ import annotations

import os

import pytest
from ansible_collections.vfio.passthrough.tests.fuzz.properties import PROPERTIES, tried

ALL = int(os.environ.get("HOSTDEV_FUZZ", "1000000"))
# of all inputs; a machine is a tree of files, and as many inputs as it has attributes
SHARES = {"machine": 0.02, "configuration": 0.38, "configuration file": 0.1, "message": 0.2, "request": 0.2, "grant folder": 0.1}


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", PROPERTIES)
def test_whatever_is_said_nothing_breaks(name: str) -> None:
    tried(name, int(ALL * SHARES[name]))()

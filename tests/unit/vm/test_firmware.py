"""When the worker's firmware is taken to hang."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.tests.vm.firmware import waits

FIRST = b"BdsDxe: starting Boot0001\n"
AGAIN = b"[ 107.3] reboot: Restarting system\n"


@pytest.mark.parametrize(
    ("serial", "hangs"),
    [
        (b"", False),
        (FIRST, False),
        (FIRST + AGAIN, True),
        (FIRST + AGAIN + FIRST, False),
        (FIRST + AGAIN + FIRST + AGAIN + b"\x1b[2J", True),
    ],
)
def test_a_restart_without_a_boot_loader_after_it_waits(serial: bytes, hangs: bool) -> None:
    assert waits(serial) is hangs

"""Regions of a PCI function."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.bars import prefetchable_bytes


def test_only_wide_prefetchable_memory_counts() -> None:
    lines = [
        "0x00000000e0000000 0x00000000e0ffffff 0x0000000000040200",
        "0x0000000100000000 0x00000001ffffffff 0x000000000014220c",
        "0x000000000000d000 0x000000000000d07f 0x0000000000040101",
        "0x0000000000000000 0x0000000000000000 0x0000000000000000",
    ]
    assert prefetchable_bytes(lines) == 4 * 1024**3
    assert prefetchable_bytes([]) == 0

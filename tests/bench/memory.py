"""Memory of the device plugin (PSS: shared pages count in part) after many calls, beside a minimal Go plugin's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from . import peers
from .figures import Figure

SIZES = (8, 256)
FEW, MANY = 1_000, 10_000
MOST_MB = 40.0
# what an allocator may keep without a leak
MOST_GROWTH_MB = 0.5
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def pss(pid: int) -> float:
    """Return a process's proportional set size in MB (10^6 bytes), from the kernel's smaps_rollup."""
    found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii"))
    if found is None:
        raise SystemExit("this kernel tells no Pss")
    return int(found[1]) * 1024 / 1e6


def after_calls(side: peers.Side) -> tuple[float, float]:
    """Return the megabytes after few and after many calls, each for another device than the one before."""
    with peers.running(side) as it:
        peers.allocate(side, side.ids[:1], FEW, warm=0)
        few = pss(it.process.pid)
        for turn in range((MANY - FEW) // FEW):
            peers.allocate(side, [side.ids[turn % len(side.ids)]], FEW, warm=0)
        return few, pss(it.process.pid)


def measure() -> Iterator[Figure]:
    """Yield the memory with few and with many devices, and how much it grew between 1,000 and 10,000 calls."""
    for devices in SIZES:
        with peers.sides(devices) as (ours, peer):
            (few, mine), (peer_few, theirs) = after_calls(ours), after_calls(peer)
        yield Figure(f"memory, {devices} devices, {MANY} calls", "MB", mine, theirs, MOST_MB)
        yield Figure(f"memory, {devices} devices, growth after {FEW} calls", "MB", mine - few, theirs - peer_few, MOST_GROWTH_MB)

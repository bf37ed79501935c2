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
# all of it, and what is no file: the share of a library changes with who else has it open
ALL, OWN = "Pss", "Pss_Anon"


def pss(pid: int, part: str = ALL) -> float:
    """Return a process's proportional set size in MB (10^6 bytes), from the kernel's smaps_rollup."""
    found = re.search(rf"^{part}:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"this kernel tells no {part}")
    return int(found[1]) * 1024 / 1e6


def after_calls(side: peers.Side) -> tuple[float, float]:
    """Return the megabytes after many calls, each thousand for another device, and how many of its own came after the first thousand."""
    with peers.running(side) as it:
        peers.allocate(side, side.ids[:1], FEW, warm=0)
        few = pss(it.process.pid, OWN)
        for turn in range((MANY - FEW) // FEW):
            peers.allocate(side, [side.ids[turn % len(side.ids)]], FEW, warm=0)
        return pss(it.process.pid), pss(it.process.pid, OWN) - few


def measure() -> Iterator[Figure]:
    """Yield the memory with few and with many devices, and how much it grew between 1,000 and 10,000 calls."""
    for devices in SIZES:
        with peers.sides(devices) as (ours, peer):
            (mine, grown), (theirs, peers_grown) = after_calls(ours), after_calls(peer)
        yield Figure(f"memory, {devices} devices, {MANY} calls", "MB", mine, theirs, MOST_MB)
        yield Figure(f"memory, {devices} devices, growth after {FEW} calls", "MB", grown, peers_grown, MOST_GROWTH_MB)

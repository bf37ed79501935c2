"""From the start of the process until the kubelet has the registration, and the list, beside a minimal Go plugin."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from ..harness import programs
from . import peers
from .figures import Figure

DEVICES = 8
STARTS = 20
MOST_S = 0.6


def start(side: peers.Side) -> tuple[float, float]:
    """Start a side once before a new kubelet and return the seconds until its registration came, and its list."""
    command = [str(programs.client()), "start", "-folder", str(side.folder), "-n", "1", "--", *side.command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    told = json.loads(done.stdout)
    return told["registered_ms"] / 1000, told["list_ms"] / 1000


def measure() -> Iterator[Figure]:
    """Yield medians and 99th percentiles over starts of both in turn; the first of each is not counted."""
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    with peers.sides(DEVICES) as both:
        for turn in range(STARTS + 1):
            for side in both:
                spent = start(side)
                if turn:
                    taken[side.name].append(spent)
    for place, what in enumerate(("registered", "first list")):
        for share, name in ((0.5, "median"), (0.99, "p99")):
            ours, theirs = ([one[place] for one in taken[side]] for side in ("ours", "peer"))
            aim = MOST_S if what == "registered" else None
            yield Figure(f"start to {what}, {name}", "s", peers.percentile(ours, share), peers.percentile(theirs, share), aim)

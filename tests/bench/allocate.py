"""Allocate, call by call: ours with all its checks beside a minimal Go plugin that gives the same answer, by one Go client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from . import peers
from .figures import Figure

DEVICES = 64
CALLS = 10_000
TURNS = 10
AS_MUCH_AS_GO = 3.0
MOST_US = 1500.0


def measure() -> Iterator[Figure]:
    """Yield median and 99th percentile of the calls for one device; both sides are called in turns of a thousand."""
    taken: dict[str, list[float]] = {"ours": [], "peer": []}
    with peers.sides(DEVICES) as both, ExitStack() as stack:
        for side in both:
            stack.enter_context(peers.running(side))
        for _turn in range(TURNS):
            answers = []
            for side in both:
                spent, answer = peers.allocate(side, [side.ids[DEVICES // 2]], CALLS // TURNS)
                taken[side.name] += spent
                answers.append(answer)
            if answers[0] != answers[1]:
                raise SystemExit(f"the two plugins answer differently: {answers}")
    middle, late = ([peers.percentile(taken[name], share) for name in ("ours", "peer")] for share in (0.5, 0.99))
    yield Figure(f"Allocate, median of {CALLS} calls", "us", middle[0], middle[1], AS_MUCH_AS_GO, aims_at_ratio=True)
    yield Figure(f"Allocate, p99 of {CALLS} calls", "us", late[0], late[1], MOST_US)

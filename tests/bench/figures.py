"""What a benchmark gives: a figure of ours beside one of a peer taken in the same run, and how both are told."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Figure:
    """One line of the table. `aim` is an upper bound, for the ratio or for ours."""

    name: str
    unit: str
    ours: float
    peer: Optional[float] = None
    aim: Optional[float] = None
    aims_at_ratio: bool = False

    @property
    def ratio(self) -> Optional[float]:
        """Return ours by peer, None without a peer."""
        return self.ours / self.peer if self.peer else None

    @property
    def met(self) -> Optional[bool]:
        """Return whether the aim is met, None where none was set."""
        reached = self.ratio if self.aims_at_ratio else self.ours
        return None if self.aim is None or reached is None else reached <= self.aim

    def as_dict(self) -> dict[str, Any]:
        """Return the figure for build/bench.json."""
        keys = ("name", "unit", "ours", "peer", "ratio", "aim", "met")
        values = {key: getattr(self, key) for key in keys}
        return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}


@dataclass(frozen=True)
class Pair:
    """Seconds of one call of ours and of the peer's, by repetition."""

    ours: list[float]
    peer: list[float]

    @property
    def best(self) -> tuple[float, float]:
        """Return the shortest times: what the work costs when nothing else runs."""
        return min(self.ours), min(self.peer)

    @property
    def middle(self) -> tuple[float, float]:
        """Return the median times."""
        return statistics.median(self.ours), statistics.median(self.peer)


def interleaved(ours: Callable[[], object], peer: Callable[[], object], repetitions: int) -> Pair:
    """Time both calls in turn, so that what else the machine does falls on both; the first call of each is not counted."""
    ours(), peer()
    taken = Pair([], [])
    gc.disable()
    try:
        for turn in range(repetitions):
            order = [(taken.ours, ours), (taken.peer, peer)]
            for times, call in order if turn % 2 else reversed(order):
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
    finally:
        gc.enable()
    return taken


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as lines of a table."""
    rows: list[tuple[str, ...]] = [("FIGURE", "UNIT", "OURS", "PEER", "RATIO", "AIM", "MET")]
    for one in figures:
        told = one.as_dict()
        met = {True: "yes", False: "NO", None: "-"}[one.met]
        aim = "-" if one.aim is None else f"{'ratio ' if one.aims_at_ratio else ''}<= {one.aim:g}"
        numbers = ["-" if told[key] is None else f"{told[key]:g}" for key in ("ours", "peer", "ratio")]
        rows.append((one.name, one.unit, *numbers, aim, met))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)

"""`make bench`: run the benchmarks, or those that are named; print a table and write build/bench.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence

from ..harness.say import say, step
from ..harness.work import BUILD
from . import allocate, deploy, discovery, idle, launcher, memory, scan, site, startup, updates
from .figures import Figure, table

BENCHMARKS: dict[str, tuple[Callable[[], Iterable[Figure]], str]] = {
    "scan": (scan.measure, "10 s"),
    "deploy": (deploy.measure, "10 s"),
    "launcher": (launcher.measure, "15 s"),
    "discovery": (discovery.measure, "20 s, 4 min cold"),
    "allocate": (allocate.measure, "20 s"),
    "memory": (memory.measure, "30 s"),
    "startup": (startup.measure, "20 s"),
    "updates": (updates.measure, "3 min"),
    "idle": (idle.measure, "1 min"),
    "site": (site.measure, "6 min"),
}


def run(names: Sequence[str]) -> list[Figure]:
    """Return the figures of these benchmarks, in their order."""
    figures: list[Figure] = []
    for name in names:
        measure, usual = BENCHMARKS[name]
        with step(f"measure {name}", usual):
            figures += measure()
    return figures


def main(arguments: Sequence[str]) -> int:
    """Measure; non-zero when an aim is not met."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure; prints a table and writes build/bench.json.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run, all when none is named: {', '.join(BENCHMARKS)}")
    names = parser.parse_args(arguments).names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    figures = run(names or list(BENCHMARKS))
    out = BUILD / "bench.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    # a run of some benchmarks leaves the figures of the others
    known = {one["name"]: one for one in json.loads(out.read_text(encoding="utf-8"))} if out.exists() else {}
    known.update({one.name: one.as_dict() for one in figures})
    out.write_text(json.dumps(list(known.values()), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{table(figures)}\n\n")
    say(f"written to {out.relative_to(BUILD.parent)}")
    return 1 if any(one.met is False for one in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Run parts of `make test` in order; say what each usually takes, where the time went, and how many passed."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import importer, lint, sanity
from .say import say
from .work import BUILD, ROOT, VENV_BIN, Tally, environment, junit, stream


@dataclass(frozen=True)
class Part:
    """A part of the suite: what it usually takes, and what runs it."""

    usual: str
    run: Callable[[], Tally]


def pytest(name: str, *folders: str, options: Sequence[str] = ()) -> Callable[[], Tally]:
    """Return the runner of a pytest part; a run without any test counts as a failure. options: further ones of pytest."""

    def run() -> Tally:
        report = BUILD / "results" / f"{name}.xml"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        present = [folder for folder in folders if (ROOT / folder).is_dir()]
        absent = [folder for folder in folders if folder not in present]
        for folder in absent:
            say(f"{name}: {folder} is not there, which counts as a failure")
        if not present:
            return Tally(0, len(absent))
        good = stream([str(VENV_BIN / "pytest"), "--durations=5", f"--junitxml={report}", *options, *present])
        counted = junit([report] if report.exists() else []) + Tally(0, len(absent))
        return counted if good or counted.failed else counted + Tally(0, 1)

    return run


def molecule() -> Tally:
    """Run every molecule scenario of tests/molecule."""
    base = ROOT / "tests/molecule/config.yml"
    options = ["--base-config", str(base)] if base.exists() else []
    scenarios = sorted(path.parent.name for path in Path(ROOT).glob("tests/molecule/*/molecule.yml") if path.parent.name != "default")
    if not scenarios:
        say("molecule: tests/molecule holds no scenario, which counts as a failure")
        return Tally(0, 1)
    total = Tally()
    for scenario in scenarios:
        good = stream([str(VENV_BIN / "molecule"), *options, "test", "-s", scenario], environment({"MOLECULE_GLOB": GLOB}))
        total += Tally(1, 0) if good else Tally(0, 1)
    return total


# a file at a time on each core, the longest first: a worker VM is one file's
BY_FILE = ("-n", "2", "--dist", "loadfile")
GLOB = "tests/molecule/*/molecule.yml"
PARTS: dict[str, Part] = {
    "lint": Part("1 min", lint.run),
    "unit": Part("45 s", pytest("unit", "tests/unit", options=("-n", "2"))),
    "sanity": Part("8 min cold, 2 min warm", sanity.run),
    "importer": Part("1 min", importer.run),
    "cluster": Part("8 min cold, 2 min warm", pytest("cluster", "tests/cluster", "tests/guest")),
    "vm": Part("15 min cold, 8 min warm", pytest("vm", "tests/e2e", "tests/vm", options=BY_FILE)),
    "molecule": Part("6 min", molecule),
    "soak": Part("an hour", pytest("soak", "tests/soak")),
}


def run_part(name: str) -> tuple[Tally, float]:
    """Run one part; an error of its own counts as one failure."""
    part = PARTS[name]
    say(f"=== {name} (usually {part.usual}) ===")
    begin = time.monotonic()
    try:
        tally = part.run()
    except Exception:  # one part must not end the others
        traceback.print_exc(file=sys.stdout)
        tally = Tally(0, 1)
    return tally, time.monotonic() - begin


def table(rows: Sequence[tuple[str, Tally, float]]) -> str:
    """Return where the time went, a line per part."""
    lines = [f"{'part':<10} {'seconds':>8} {'passed':>7} {'failed':>7}"]
    lines += [f"{name:<10} {seconds:>8.1f} {tally.passed:>7} {tally.failed:>7}" for name, tally, seconds in rows]
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    """Run the named parts, all of them also when one fails; non-zero when anything failed."""
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        sys.stdout.write(f"parts to choose from: {' '.join(PARTS)}; not known: {' '.join(unknown) or '(none given)'}\n")
        return 2
    rows = [(name, *run_part(name)) for name in names]
    total = sum((tally for dummy, tally, unused in rows), Tally())
    sys.stdout.write(f"\n{table(rows)}\n{'total':<10} {sum(seconds for dummy, unused, seconds in rows):>8.1f}\n\n{total}\n")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

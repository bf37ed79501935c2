"""Run every case file of a folder through the public functions: `make cases CASES=FOLDER`.

An adapter is a module tests/cases/adapters/NAME.py, NAME being the file's name with '-' as '_' (the whole sub-folder
`machines` has one: machines.py), with `cases(document) -> Iterator[Case]`. An adapter translates shapes only: it knows
no case by its id. What it does not know it yields with run=None; that counts as not known, never as failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

HERE = Path(__file__).parent
PACKAGE = "ansible_collections.vfio.passthrough.tests.cases.adapters"


@dataclass(frozen=True)
class Case:
    """One case: its id, and a check that raises AssertionError (with what differed) or returns; None when not known."""

    id: str
    run: Optional[Callable[[], None]]


@dataclass(frozen=True)
class Outcome:
    """What one file gave: passed and not known are counts, failed is id -> text."""

    name: str
    passed: int
    failed: dict[str, str]
    unknown: int

    def line(self) -> str:
        """Return "NAME: N passed, M failed, K not known"."""
        return f"{self.name}: {self.passed} passed, {len(self.failed)} failed, {self.unknown} not known"


def same(got: Any, want: Any) -> None:
    """Raise AssertionError, showing both as JSON, unless equal."""
    if got != want:
        raise AssertionError(
            f"got  {json.dumps(got, default=str, sort_keys=True)}\n      want {json.dumps(want, default=str, sort_keys=True)}"
        )


def adapter_of(name: str) -> Optional[ModuleType]:
    """Return the adapter module for a case file's name below the folder, or None when there is none."""
    module = "machines" if name.startswith("machines/") else name.replace("-", "_")
    if not (HERE / "adapters" / f"{module}.py").is_file():
        return None
    return importlib.import_module(f"{PACKAGE}.{module}")


def run_file(name: str, document: Any) -> Outcome:
    """Run one case file; without an adapter all of it is not known."""
    adapter = adapter_of(name)
    passed, unknown, failed = 0, 0, {}
    found: Iterator[Case] = adapter.cases(document) if adapter else iter([Case(name, None)])
    for case in found:
        if case.run is None:
            unknown += 1
            continue
        try:
            case.run()
            passed += 1
        except AssertionError as difference:
            failed[case.id] = str(difference)
        except Exception:
            failed[case.id] = traceback.format_exc(limit=-3)
    return Outcome(name, passed, failed, unknown)


def run_folder(folder: Path) -> list[Outcome]:
    """Run every .json file in the folder and its sub-folders, in order of their names."""
    files = sorted(folder.rglob("*.json"))
    return [run_file(str(file.relative_to(folder).with_suffix("")), json.loads(file.read_text(encoding="utf-8"))) for file in files]


def main() -> int:
    """Print one line per file with its failing cases; 1 when any case failed or there was no case at all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "data")
    outcomes = run_folder(parser.parse_args().folder.resolve())
    for outcome in outcomes:
        sys.stdout.write(outcome.line() + "\n")
        for name, text in outcome.failed.items():
            sys.stdout.write(f"  FAILED {name}\n      {text}\n")
    return 1 if any(outcome.failed for outcome in outcomes) or not outcomes else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Run every case file of a folder through the public functions: `make cases CASES=FOLDER`.

An adapter is a module tests/cases/adapters/NAME.py, NAME being the file's name with '-' as '_' (the whole sub-folder
`machines` has one: machines.py), with `cases(document) -> Iterator[Case]` and SECTIONS, the top-level names that it
reads. An adapter translates shapes only: it knows no case by its id. What it does not know it yields with run=None; that
counts as not known, never as failed, and so does a file without an adapter and each section that no adapter reads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
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
    """What one file gave: passed and unknown are counts, failed is (id, text) of each."""

    name: str
    passed: int
    failed: tuple[tuple[str, str], ...]
    unknown: int

    def line(self) -> str:
        """Return "NAME: N passed, M failed, K not known"."""
        return f"{self.name}: {self.passed} passed, {len(self.failed)} failed, {self.unknown} not known"

    @property
    def total(self) -> int:
        """Return how many cases there were."""
        return self.passed + len(self.failed) + self.unknown


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


def unread(document: Any, sections: Collection[str]) -> list[str]:
    """Return the top-level names that hold data and are none of the sections; sentences and lists of them are no data."""
    if not isinstance(document, dict):
        return []

    def is_data(value: Any) -> bool:
        return isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(one, str) for one in value))

    return [name for name, value in document.items() if name not in sections and is_data(value)]


def fault_of(work: Callable[[], object]) -> str:
    """Do the work and return what went wrong, "" for nothing."""
    try:
        work()
    except AssertionError as difference:
        return str(difference) or traceback.format_exc(limit=-3)
    except Exception:
        return traceback.format_exc(limit=-3)
    return ""


def run_file(name: str, text: str) -> Outcome:
    """Run one case file; without an adapter all of it is not known. An adapter that gives up fails once, for the rest."""
    passed, unknown = 0, 0
    failed: list[tuple[str, str]] = []

    def run_all() -> None:
        nonlocal passed, unknown
        adapter = adapter_of(name)
        if adapter is None:
            unknown += 1
            return
        document = json.loads(text)
        unknown += len(unread(document, adapter.SECTIONS))
        for case in adapter.cases(document):
            if case.run is None:
                unknown += 1
                continue
            fault = fault_of(case.run)
            passed += not fault
            failed.extend([(case.id, fault)] if fault else ())

    gave_up = fault_of(run_all)
    failed += [("(the rest of the file)", gave_up)] if gave_up else []
    return Outcome(name, passed, tuple(failed), unknown)


def run_folder(folder: Path) -> list[Outcome]:
    """Run every .json file in the folder and its sub-folders, in order of their names."""
    files = sorted(folder.rglob("*.json"))
    return [run_file(str(file.relative_to(folder).with_suffix("")), file.read_text(encoding="utf-8")) for file in files]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print one line per file with its failing cases; 1 when any case failed, 2 when there was none to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "data")
    folder = parser.parse_args(arguments).folder
    outcomes = run_folder(folder.resolve())
    if not sum(outcome.total for outcome in outcomes):
        why = "has no case" if folder.is_dir() else "is not a folder"
        sys.stderr.write(f"running the cases of {folder}: it {why}; give a folder of case files, as in make cases CASES=FOLDER\n")
        return 2
    for outcome in outcomes:
        sys.stdout.write(outcome.line() + "\n")
        for name, text in outcome.failed:
            sys.stdout.write(f"  FAILED {name}\n      {text}\n")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())

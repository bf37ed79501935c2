"""The case runner: what it does not know never fails, what fails never hides the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import pytest
from ansible_collections.vfio.passthrough.tests.cases import runner
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

ROOT = Path(__file__).parents[3]


def sums(document: dict[str, Any]) -> Iterator[Case]:
    """Yield a case per sum; one without its total is not known, one without its terms is nothing that this can read."""
    for number, case in enumerate(document.get("sums", ())):
        terms = case["terms"]
        yield Case(f"sums {number}", partial(same, sum(terms), case["total"]) if "total" in case else None)


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ModuleType("tiny")
    vars(adapter).update(cases=sums, SECTIONS=("sums",))

    def found(name: str) -> Optional[ModuleType]:
        return adapter if name.endswith("tiny") else None

    monkeypatch.setattr(runner, "adapter_of", found)


def put(folder: Path, name: str, document: Any) -> None:
    place = folder / f"{name}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")


def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = runner.main([str(folder)])
    out, err = capsys.readouterr()
    return code, out + err


GOOD = {"terms": [1, 2], "total": 3}
BAD = {"terms": [1, 2], "total": 4}
ODD = {"terms": [1]}


def test_each_file_has_its_line_and_each_failure_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "tiny", {"sums": [GOOD, BAD, ODD, GOOD]})
    put(tmp_path, "machines/tiny", {"sums": [GOOD]})
    code, said = run(tmp_path, capsys)
    assert code == 1
    lines = said.splitlines()
    assert lines[:3] == ["machines/tiny: 1 passed, 0 failed, 0 not known", "tiny: 2 passed, 1 failed, 1 not known", "  FAILED sums 1"]
    assert [line.split() for line in lines[3:]] == [["got", "3"], ["want", "4"]]


def test_two_failures_of_one_id_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = ModuleType("twice")
    vars(twice).update(SECTIONS=(), cases=lambda _document: iter([Case("one", partial(same, 1, 2))] * 2))
    monkeypatch.setattr(runner, "adapter_of", lambda _name: twice)
    assert runner.run_file("twice", "{}").line() == "twice: 0 passed, 2 failed, 0 not known"


def test_an_adapter_that_gives_up_fails_for_the_rest_of_its_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "a-tiny", {"sums": [GOOD, {"total": 3}, GOOD]})
    put(tmp_path, "b-tiny", "{no json")
    put(tmp_path, "c-tiny", {"sums": [GOOD]})
    code, said = run(tmp_path, capsys)
    assert code == 1
    assert [line for line in said.splitlines() if "passed" in line] == [
        "a-tiny: 1 passed, 1 failed, 0 not known",
        "b-tiny: 0 passed, 1 failed, 0 not known",
        "c-tiny: 1 passed, 0 failed, 0 not known",
    ]
    assert "FAILED (the rest of the file)" in said
    assert "KeyError: 'terms'" in said


def test_what_no_adapter_reads_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "other", "{no json, and nobody reads it")
    prose = {"about": "sums", "format": 1, "notes": ["a", "b"]}
    put(tmp_path, "tiny", {**prose, "sums": [GOOD], "products": [{"terms": [1]}], "table": {"a": 1}})
    assert run(tmp_path, capsys) == (0, "other: 0 passed, 0 failed, 1 not known\ntiny: 1 passed, 0 failed, 2 not known\n")


@pytest.mark.parametrize(("name", "why"), [("gone", "is not a folder"), ("empty", "has no case"), ("bare", "has no case")])
def test_nothing_to_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path / "bare", "tiny", {"sums": []})
    code, said = run(tmp_path / name, capsys)
    assert code == 2
    assert f"running the cases of {tmp_path / name}: it {why}" in said


@pytest.mark.parametrize("given", ["absolute", "relative to the caller", "relative to the tree", "default"])
def test_make_hands_the_callers_folder_on(tmp_path: Path, given: str) -> None:
    (tmp_path / "mine").mkdir()
    folder = {"absolute": str(tmp_path / "mine"), "relative to the caller": "mine"}.get(given, "tests/cases/data")
    words = ["make", "-n", "-s", "-C", str(ROOT), "cases", *([] if given == "default" else [f"CASES={folder}"])]
    assert shutil.which("make"), "the tests need make"
    environment = {name: value for name, value in os.environ.items() if name != "CASES" and not name.startswith("MAKE")}
    environment["PWD"] = str(tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    handed = done.stdout.strip().splitlines()[-1].rpartition("cases.runner ")[2]
    wanted = tmp_path / "mine" if "tests" not in folder else Path(folder)
    assert Path(handed) == wanted

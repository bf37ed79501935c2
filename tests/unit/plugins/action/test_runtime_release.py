"""The runtime shipped by ansible-playbook to this machine, into a temporary folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.vfio.passthrough.plugins.action import runtime_release
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.pack import digest, tree
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.version import __version__

RUNTIME = runtime_release.RUNTIME
COLLECTIONS = Path(runtime_release.__file__).parents[5]
ANSWER = re.compile(r"^(?:ok|changed|fatal): \[localhost\](?:: FAILED!)? => ", re.MULTILINE)


def play(place: Path, tasks: list[dict[str, Any]], *, pipelining: bool) -> list[dict[str, Any]]:
    """Run runtime_release tasks on this machine; returns each one's result."""
    common = {"prefix": f"{place}/lib", "command": f"{place}/sbin/hostdev", "python": sys.executable}
    steps = [
        {"name": "Ship", "vfio.passthrough.runtime_release": {**common, **task.pop("with", {})}, "ignore_errors": True, **task}
        for task in tasks
    ]
    text = json.dumps([{"name": "Ship", "hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": steps}])
    (place / "play.yml").write_text(text, encoding="utf-8")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_REMOTE_TEMP": str(place / "remote"),
        "ANSIBLE_LOCAL_TEMP": str(place / "local"),
        "ANSIBLE_PIPELINING": str(pipelining),
        "ANSIBLE_NOCOLOR": "1",
    }
    program = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "ansible-playbook"
    command = [program, "-v", "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", "play.yml"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    answers = [json.JSONDecoder().raw_decode(done.stdout, found.end())[0] for found in ANSWER.finditer(done.stdout)]
    assert len(answers) == len(tasks), done.stdout + done.stderr
    return answers


@pytest.mark.parametrize("pipelining", [False, True])
def test_there_again_and_back(tmp_path: Path, pipelining: bool) -> None:
    tasks: list[dict[str, Any]] = [
        {"with": {"python": "/nowhere/python3"}},
        {"check_mode": True},
        {},
        {},
        {"check_mode": True, "with": {"state": "absent"}},
        {"with": {"state": "absent"}},
        {"with": {"state": "absent"}},
    ]
    failed, would, first, second, would_go, gone, still = play(tmp_path, tasks, pipelining=pipelining)
    assert failed["fault"]["kind"] == "absent"
    assert "/nowhere/python3" in failed["msg"]
    sent = digest(tree(RUNTIME))
    assert [(one["changed"], one["digest"], one["missing"]) for one in (would, first, second)] == [
        (True, sent, True),
        (True, sent, False),
        (False, sent, False),
    ]
    assert first["version"] == second["version"] == __version__
    assert [one["changed"] for one in (would_go, gone, still)] == [True, True, False]
    assert not (tmp_path / "lib").exists()
    assert list((tmp_path / "remote").iterdir() if (tmp_path / "remote").exists() else []) == []


def test_what_arrives_is_the_tree(tmp_path: Path) -> None:
    play(tmp_path, [{}], pipelining=True)
    assert tree(tmp_path / "lib/current/hostdev") == tree(RUNTIME)
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import hostdev.root", str(tmp_path / "lib/current")],
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize(("missing", "check", "calls"), [(False, False, 1), (True, False, 2), (True, True, 1)])
def test_the_archive_is_sent_only_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, missing: bool, check: bool, calls: int) -> None:
    task = MagicMock(args={}, check_mode=check, async_val=0, diff=False)
    action = runtime_release.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    asked: list[dict[str, Any]] = []

    def answer(module_args: dict[str, Any], **unused: Any) -> dict[str, Any]:
        asked.append(module_args)
        return {"changed": missing, "missing": missing}

    for name in ("_transfer_file", "_fixup_perms2", "_remove_tmp_path", "_make_tmp_path"):
        monkeypatch.setattr(action, name, MagicMock())
    monkeypatch.setattr(action, "_execute_module", answer)
    action.run(task_vars={})
    assert [("archive" in one, len(one["digest"])) for one in asked] == [(False, 64), (True, 64)][:calls]

"""Releases of the runtime on a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.pack import digest, pack
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.version import __version__
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.plugins.modules.runtime_release import work

CLI = "import sys\ndef main(arguments):\n    sys.stdout.write(f'{sys.argv[0]} {arguments}')\n    return 7\n"


def files(mark: str) -> dict[str, bytes]:
    init = f'__version__ = "{__version__}"\n'
    return {
        "hostdev/__init__.py": b"",
        "hostdev/device/version.py": init.encode(),
        "hostdev/cli.py": CLI.encode(),
        "hostdev/mark.py": mark.encode(),
    }


class Node:
    """A node's folders below one temporary folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.prefix, self.command = f"{place}/lib", f"{place}/sbin/hostdev"
        self.root = Root()

    def run(self, mark: str = "x", *, check: bool = False, **more: Any) -> dict[str, Any]:
        sent = files(mark)
        archive = self.place / f"{mark}.zip"
        archive.write_bytes(pack(sent))
        given = {"state": "present", "digest": digest(sent), "archive": str(archive), "python": sys.executable}
        given |= {"prefix": self.prefix, "command": self.command, **more}
        return work(SimpleNamespace(params=given, check_mode=check), self.root)

    def content(self) -> dict[str, str]:
        found = (path for path in self.place.rglob("*") if path.suffix not in (".zip", ".pyc") and "__pycache__" not in path.name)
        return {str(path): str(path.readlink()) if path.is_symlink() else str(path.is_dir() or path.stat().st_mode) for path in found}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_first_release_runs_from_anywhere(node: Node) -> None:
    result = node.run("a")
    assert (result["changed"], result["version"], result["previous"], result["missing"]) == (True, __version__, "", False)
    trap = node.place / "hostdev"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    done = subprocess.run([node.command, "a b", "--c"], cwd=node.place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hostdev ['a b', '--c']", "")
    assert list((Path(node.prefix) / "current/hostdev/__pycache__").glob("cli.*.pyc"))


def test_everybody_may_read_it_whatever_the_umask(node: Node) -> None:
    before = os.umask(0o077)
    try:
        node.run("a")
    finally:
        os.umask(before)
    found = {path.relative_to(node.prefix): path.stat().st_mode & 0o777 for path in Path(node.prefix).rglob("*")}
    assert {path for path, mode in found.items() if mode not in (0o755, 0o644)} == set()


def test_second_run_changes_nothing(node: Node) -> None:
    node.run("a")
    before = node.content()
    result = node.run("a", archive=None)
    assert (result["changed"], result["missing"], result["diff"]) == (False, False, {})
    assert node.content() == before


def test_asking_without_an_archive_only_says_that_it_is_missing(node: Node) -> None:
    result = node.run("a", archive=None)
    assert (result["changed"], result["missing"]) == (True, True)
    assert not Path(node.prefix).exists()


def test_the_release_before_is_kept_and_older_ones_go(node: Node) -> None:
    first, second, third = (node.run(mark)["digest"] for mark in "abc")
    last = node.run("c")
    assert (last["digest"], last["previous"]) == (third, second)
    assert first not in last["releases"]
    back = node.run("b", archive=None)
    assert (back["digest"], back["previous"], back["changed"]) == (second, third, True)


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_says_what_the_real_run_does(node: Node, state: str) -> None:
    node.run("a")
    before = node.content()
    said = node.run("b", check=True, state=state)
    assert node.content() == before
    assert {**said, "missing": False} == node.run("b", state=state)


def test_absent_leaves_nothing_and_is_settled(node: Node) -> None:
    node.run("a")
    node.run("b")
    assert node.run(state="absent")["changed"] is True
    assert [path.name for path in node.place.iterdir() if path.suffix != ".zip"] == ["sbin"]
    assert not list((node.place / "sbin").iterdir())
    again = node.run(state="absent")
    assert (again["changed"], again["digest"], again["releases"]) == (False, "", [])


def test_what_an_interrupted_run_left_is_cleared(node: Node) -> None:
    node.run("a")
    (Path(node.prefix) / "releases/.new-x/hostdev").mkdir(parents=True)
    (Path(node.prefix) / ".current.new").symlink_to("nowhere")
    assert len(node.run("b")["releases"]) == 2
    assert sorted(path.name for path in Path(node.prefix).iterdir()) == ["current", "previous", "releases"]
    assert not [path for path in (Path(node.prefix) / "releases").iterdir() if path.name.startswith(".")]


def test_a_command_of_others_is_never_replaced(node: Node) -> None:
    Path(node.command).parent.mkdir()
    Path(node.command).write_text("theirs", encoding="utf-8")
    with pytest.raises(Refused, match="not ours"):
        node.run("a")
    assert not Path(node.prefix).exists()
    node.run("a", command="")
    node.run(state="absent")
    assert Path(node.command).read_text(encoding="utf-8") == "theirs"


def test_an_old_python_is_refused_before_anything_is_written(node: Node) -> None:
    node.root = Root(runner=lambda _command, _timeout: Done(0, "3.8", ""))
    with pytest.raises(Unsupported, match=r"Python 3.8: it needs Python 3\.9 or newer"):
        node.run("a", check=True)
    assert not Path(node.prefix).exists()


def test_a_lost_link_or_launcher_is_mended(node: Node) -> None:
    node.run("a")
    Path(node.command).unlink()
    (Path(node.prefix) / "current/bin/hostdev").unlink()
    assert node.run("a", archive=None)["changed"] is True
    assert subprocess.run([node.command], capture_output=True, check=False).returncode == 7

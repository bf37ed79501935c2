"""Run the tools of the tests: output goes to a log under build/, and to the terminal where it says what failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .say import say

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
VENV_BIN = ROOT / ".venv/bin"
COLLECTION = Path("ansible_collections/vfio/passthrough")
ENVIRONMENTS = Path("tests/output/.tmp/delegation")
TAIL = 60
# seconds: of a tool, of a part that shows its output as it comes (soak takes hours), and from being told to end to being made to
LIMIT, LONG_LIMIT, GRACE = 1500.0, 4 * 3600.0, 60.0


@dataclass(frozen=True)
class Tally:
    """How many checks passed and failed; adds up."""

    passed: int = 0
    failed: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return Tally(self.passed + other.passed, self.failed + other.failed)

    def __str__(self) -> str:
        """Return the plain closing line."""
        return f"{self.passed} passed, {self.failed} failed"


def environment(changes: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return the environment of a tool: the .venv's programs first, our collection findable, no colours."""
    path = os.pathsep.join([str(VENV_BIN), os.environ.get("PATH", "")])
    ours = {"PATH": path, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"), "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
    return {**os.environ, **ours, **(changes or {})}


def call(name: str, command: Sequence[str], *, cwd: Path = ROOT, env: Optional[Mapping[str, str]] = None) -> tuple[bool, str]:
    """Run a command with its output in build/logs/NAME.log; return whether it succeeded, and the output.

    When it fails, the last lines of the output are shown.
    """
    log = BUILD / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        code = bounded(command, cwd=cwd, env=environment(env), seconds=LIMIT, stdout=file, stderr=subprocess.STDOUT)
    output = log.read_text(encoding="utf-8", errors="replace")
    if code:
        sys.stdout.write("\n".join([*output.splitlines()[-TAIL:], ""]))
        say(f"{name}: exit {code}; the whole output is in {log.relative_to(ROOT)}")
    return code == 0, output


def bounded(command: Sequence[str], *, seconds: float, **how: Any) -> int:
    """Run a command and return its exit code; one that does not end in so many seconds is ended with all its children.

    Without a bound one test that hangs takes the whole run with it, and says nothing.
    """
    with subprocess.Popen(list(command), stdin=subprocess.DEVNULL, start_new_session=True, **how) as running:
        try:
            return running.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"{Path(command[0]).name} did not end within {seconds:.0f} s, and is ended")
            return 1
        finally:
            # also after an interrupt: the session is the command's own, so that the terminal's signal does not reach it
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGINT if running.poll() is None else signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                running.wait(GRACE)
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def check(name: str, command: Sequence[str], *, cwd: Path = ROOT, env: Optional[Mapping[str, str]] = None) -> Tally:
    """Run a command that counts as one check."""
    good, dummy = call(name, command, cwd=cwd, env=env)
    if good:
        say(f"{name}: passed")
    return Tally(1, 0) if good else Tally(0, 1)


def junit(files: Iterable[Path]) -> Tally:
    """Return the sum over JUnit files; errors count as failures, skipped tests as neither."""
    total = Tally()
    for file in files:
        for suite in ET.parse(file).getroot().iter("testsuite"):
            bad = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
            skipped = int(suite.get("skipped", "0") or "0")
            total += Tally(int(suite.get("tests", "0")) - bad - skipped, bad)
    return total


def tree_files() -> list[str]:
    """Return the files of the tree that git knows or would take, without those that are deleted in the working tree."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def copy_tree(collections: Path) -> Path:
    """Copy the tree to COLLECTIONS/ansible_collections/vfio/passthrough as a git repository of its own; return that.

    ansible-test takes neither a symlink nor a copy that the repository around it ignores: with the latter it
    says that all targets are skipped, and succeeds. The environments that it has made for the units stay: making
    them takes longer than the tests.
    """
    place, aside = collections / COLLECTION, collections / "environments"
    made = place / ENVIRONMENTS
    if made.is_dir() and not aside.exists():
        made.rename(aside)
    shutil.rmtree(place, ignore_errors=True)
    for name in tree_files():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    for arguments in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *arguments], cwd=place, check=True, capture_output=True)
    if aside.is_dir():
        made.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(made)
    return place


def stream(command: Sequence[str], env: Optional[Mapping[str, str]] = None) -> bool:
    """Run a command whose output belongs on the terminal as it comes; return whether it succeeded."""
    sys.stdout.flush()
    return bounded(command, cwd=ROOT, env=env or environment(), seconds=LONG_LIMIT) == 0

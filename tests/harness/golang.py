"""Find the Go toolchain, or install one that is new enough to fetch newer ones by itself (1.21)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from . import debian

FLOOR = (1, 21)


def candidates() -> Iterator[Path]:
    """Yield the go commands of this machine: on PATH, then where packages and the tarball put them, newest first."""
    found = shutil.which("go")
    if found:
        yield Path(found)
    yield Path("/usr/local/go/bin/go")
    yield from sorted(Path("/usr/lib").glob("go-*/bin/go"), reverse=True)


def version(command: Path) -> tuple[int, int]:
    """Return (major, minor) of a go command; (0, 0) where it does not run.

    GOTOOLCHAIN=local: the question is about this very command, not about one that it would download.
    """
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run([str(command), "version"], capture_output=True, text=True, check=False, env=environment).stdout
    except OSError:
        return (0, 0)
    numbers = re.search(r"go version go(\d+)\.(\d+)", answer)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def find() -> Optional[Path]:
    """Return the first go command of at least 1.21, None when there is none."""
    return next((command for command in candidates() if version(command) >= FLOOR), None)


def go() -> Path:
    """Return the go command that the tests use; raise Unprepared when `make venv` has not run."""
    command = find()
    if command is None:
        raise debian.Unprepared("looking for Go 1.21 or newer: none found; run `make venv`, which installs it")
    return command


def offered() -> tuple[int, int]:
    """Return (major, minor) of the release's own golang-go package, (0, 0) where apt knows none."""
    shown = subprocess.run(["apt-cache", "policy", "golang-go"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"Candidate: (?:\d+:)?(\d+)\.(\d+)", shown)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def ensure() -> Path:
    """Return a go command of at least 1.21, installing the release's package or the backported one when needed."""
    command = find()
    if command is None:
        if offered() >= FLOOR:
            debian.install(["golang-go"])
        else:
            debian.install_from_backports(["golang-go"])
        command = go()
    return command


def environment(*, cgo: bool = False) -> dict[str, str]:
    """Return the environment of a build: it takes nothing from the user's Go settings but the proxy."""
    made = dict(os.environ, CGO_ENABLED=str(int(cgo)), GOFLAGS="-mod=readonly -buildvcs=false", GOWORK="off")
    made.setdefault("GOTOOLCHAIN", "auto")  # an older Go fetches the one that go.mod names
    return made

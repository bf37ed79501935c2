"""Virtual environments of tools that must not share ours, kept in the cache."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from .cache import cached, entry


def environment(name: str, python: Path, requirements: Sequence[str], usual: str) -> Path:
    """Return a virtual environment of that interpreter with the requirements installed."""
    key = [name, str(python), *requirements]
    final = entry(name, key)

    def build(draft: Path) -> None:
        subprocess.run([str(python), "-m", "venv", str(draft)], check=True)
        pip = [str(draft / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *requirements], check=True)
        rename(draft / "bin", str(draft), str(final))

    return cached(name, key, build, usual)


def rename(programs: Path, draft: str, final: str) -> None:
    """Point the programs' first lines at the name that the cache gives the environment once it is whole."""
    for program in programs.iterdir():
        if program.is_symlink() or not program.is_file():
            continue
        data = program.read_bytes()
        if data.startswith(b"#!"):
            first, newline, rest = data.partition(b"\n")
            program.write_bytes(first.replace(draft.encode(), final.encode()) + newline + rest)

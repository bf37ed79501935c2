"""No file names the machine that it was written on, the hosts of package registries, or papers that are not in the tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

SKIPPED = {
    ".git",
    ".venv",
    "build",
    "collections",
    ".ansible",
    "output",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}
LARGEST = 1024 * 1024
# the given cases are kept as they were given
GIVEN = "tests/cases/data/"
# in pieces, so that this file does not hold what it looks for
PIECES: list[tuple[str, ...]] = [
    ("/wo", "rk/"),
    ("/root/", r"\.(?:pyenv|cache)"),
    ("/tmp/te", "am"),
    (r"\.\./sha", "red"),
    ("(?<![\\w/])design", r"\.md"),
    ("vm-har", "ness"),
    ("cluster-har", "ness"),
    ("model-code", "bases"),
    ("ansible-conv", "entions"),
    ("host-prep", r"aration\.md"),
    # the page of this name in docs/ is ours
    (r"(?<!docs/)(?<!\]\()device-plu", r"gin\.md(?! explains)"),
    ("launcher-and-", r"dra\.md"),
    ("kubernetes-", r"apis\.md"),
    ("py", r"pi\.org"),
    ("python", r"hosted\.org"),
    ("proxy", r"\.golang\.org"),
    ("deb", r"\.debian\.org"),
    ("archive", r"\.ubuntu\.com"),
    ("npm", r"js\.org"),
    ("crates", r"\.io"),
]
BANNED = re.compile("|".join(f"(?:{''.join(pieces)})" for pieces in PIECES))
EXAMPLES = [
    f"see /{'wo'}rk/main",
    f"from ../{'sha'}red/guides",
    f"https://{'py'}pi.org/simple",
    f"http://{'deb'}.debian.org/debian",
    f"as {'vm'}-harness.md says",
]


def texts() -> Iterator[tuple[str, str]]:
    """Yield path and text of every file of the tree that is text and not made by a tool."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < LARGEST and not name.endswith((".gz", ".pyc")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield os.path.relpath(path, ROOT), file.read()


def word_faults(path: str, text: str) -> list[str]:
    """Return the lines that hold a banned word."""
    lines = enumerate(text.splitlines(), 1)
    if path.startswith(GIVEN):
        return []
    return [f"{path}:{number}: {found[0]}" for number, line in lines for found in [BANNED.search(line)] if found]


def test_no_file_holds_a_banned_word() -> None:
    faults = [fault for path, text in texts() for fault in word_faults(path, text)]
    assert not faults, "\n".join(faults)


def test_files_are_found() -> None:
    assert "galaxy.yml" in {path for path, dummy in texts()}


@pytest.mark.parametrize("text", EXAMPLES)
def test_banned_words_are_seen(text: str) -> None:
    assert word_faults("x", text)

"""The one cache folder of the tests: every entry is keyed by its inputs and appears whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Union

from .say import step

Input = Union[str, bytes, Path]


def folder() -> Path:
    """Return the cache folder: $HOSTDEV_TEST_CACHE, else vfio-passthrough below the user's cache folder."""
    named = os.environ.get("HOSTDEV_TEST_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vfio-passthrough"
    base.mkdir(parents=True, exist_ok=True)
    return base


def digest(inputs: Iterable[Input]) -> str:
    """Return 12 hex digits over the inputs; a Path stands for its file's content (folders: all files below, by name)."""
    total = hashlib.sha256()
    for item in inputs:
        parts = sorted(p for p in item.rglob("*") if p.is_file()) if isinstance(item, Path) and item.is_dir() else [item]
        for part in parts:
            data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
            total.update(hashlib.sha256(data).digest())
    return total.hexdigest()[:12]


def entry(name: str, inputs: Iterable[Input]) -> Path:
    """Return where the entry for these inputs is or would be."""
    return folder() / f"{name}-{digest(inputs)}"


def cached(name: str, inputs: Iterable[Input], build: Callable[[Path], None], usual: str = "") -> Path:
    """Return the folder NAME-DIGEST, calling build(new folder) when it is missing.

    One builder at a time per entry (flock); the folder gets its name only after build returned, so an
    interrupted build leaves nothing that a later run would take for whole.
    """
    place = entry(name, inputs)
    with open(folder() / f".{place.name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        draft = place.with_name(f"{place.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        with step(f"build {name} (once, kept in the cache)", usual):
            build(draft)
        draft.rename(place)
    return place

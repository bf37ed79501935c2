# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Releases of the runtime on a node: releases/DIGEST beside each other, `current` points to one, `previous` to the one before.

A release is never changed after it got its name, so a program that runs keeps its code, and going back is one link.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..hostdev.device.faults import Refused, Unsupported
from ..hostdev.root import Root, entries, read_link_name, read_text
from .pack import PACKAGE, VERSION_FILE, unpack, version_of

PREFIX = "/usr/lib/vfio-passthrough"
COMMAND = "/usr/local/sbin/hostdev"
# -I: nothing of the caller's folder or environment is imported by a program that runs as root
LAUNCHER = """\
#!/bin/sh
# Written by vfio.passthrough: runs this release of the runtime.
release=$(dirname "$(dirname "$(readlink -f "$0")")")
exec {python} -I -c 'import sys
sys.argv[0] = "hostdev"
sys.path.insert(0, sys.argv.pop(1))
from hostdev.cli import main
raise SystemExit(main(sys.argv[1:]))' "$release" "$@"
"""
_PROBE = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
OLDEST = (3, 9)


@dataclass(frozen=True)
class Place:
    """Where releases live on a node. command: the link by which an administrator calls the program; empty for none."""

    root: Root
    prefix: str = PREFIX
    command: str = COMMAND
    python: str = "/usr/bin/python3"

    @property
    def base(self) -> Path:
        """The folder of everything."""
        return self.root.at(self.prefix)

    def release(self, digest: str) -> Path:
        """The folder of one release."""
        return self.base / "releases" / digest

    def link(self, name: str) -> str:
        """Return the digest that `current` or `previous` points to, or empty text."""
        return read_link_name(self.base / name) or ""


def observe(place: Place) -> dict[str, Any]:
    """Return what is there: current and previous digest, all digests, the current one's version, and the command link's state."""
    current = place.link("current")
    return {
        "current": current,
        "previous": place.link("previous"),
        "releases": [name for name in entries(place.base / "releases") if not name.startswith(".")],
        "version": version_of(read_text(place.release(current) / PACKAGE / VERSION_FILE)) if current else "",
        "command": _command_state(place),
    }


def _target(place: Place) -> str:
    return f"{place.prefix}/current/bin/hostdev"


def _command_state(place: Place) -> str:
    """Return "ours", "absent", or "foreign"; "ours" also when no link is wanted."""
    path = place.root.at(place.command) if place.command else None
    if path is None:
        return "ours"
    if path.is_symlink() and os.readlink(path) == _target(place):
        return "ours"
    return "foreign" if path.is_symlink() or path.exists() else "absent"


def check_node(place: Place) -> None:
    """Raise Unsupported when the node's Python is too old, Refused when the command's name is taken by somebody else's file."""
    said = place.root.must([place.python, "-c", _PROBE], "ask for the node's Python version", hint=f"install {place.python}")
    if tuple(int(part) for part in said.split(".")) < OLDEST:
        raise Unsupported(
            what="run the runtime on this node",
            subject=f"{place.python} is Python {said}",
            cause=f"it needs Python {OLDEST[0]}.{OLDEST[1]} or newer",
            hint="name a newer one with the option python",
        )
    if _command_state(place) == "foreign":
        raise Refused(
            what="link the program's command",
            subject=place.command,
            cause="something that is not ours is there",
            hint="move it away, or choose another path with the option command",
        )


def is_gone(place: Place, state: Mapping[str, Any]) -> bool:
    """Say whether nothing of ours is left."""
    linked = bool(place.command) and state["command"] == "ours"
    return not (linked or state["current"] or state["previous"] or entries(place.base / "releases"))


def forecast(state: Mapping[str, Any], digest: str, version: str) -> dict[str, Any]:
    """Return what would be there after the change to a release; empty digest: after the removal."""
    if not digest:
        command = "absent" if state["command"] == "ours" else state["command"]
        return {"current": "", "previous": "", "releases": [], "version": "", "command": command}
    previous = state["previous"] if state["current"] in ("", digest) else state["current"]
    kept = sorted({digest, previous} - {""})
    return {"current": digest, "previous": previous, "releases": kept, "version": version, "command": "ours"}


def is_settled(place: Place, state: Mapping[str, Any], digest: str) -> bool:
    """Say whether this release is the current one and everything that belongs to it is there."""
    launcher = read_text(place.release(digest) / "bin/hostdev")
    same = launcher == LAUNCHER.format(python=place.python).rstrip()
    return bool(state["current"] == digest and state["command"] == "ours" and same)


def install(place: Place, digest: str, archive: Path | None) -> None:
    """Make the release the current one: unpacked and compiled beside the others first, where it is not there yet."""
    check_node(place)
    before = place.link("current")
    if archive is not None and not place.release(digest).is_dir():
        _unpack(place, digest, archive)
    _write_launcher(place, place.release(digest))
    if before != digest:
        if before:
            _point(place, "previous", before)
        _point(place, "current", digest)
    if place.command:
        path = place.root.at(place.command)
        _folder(path.parent)
        _link(path, _target(place))
    _prune(place)


def _unpack(place: Place, digest: str, archive: Path) -> None:
    files = unpack(archive, digest)
    releases = place.base / "releases"
    _folder(place.base)
    _folder(releases)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=releases))
    try:
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # the release never changes, so its compiled files need no look at the sources' times
        command = [place.python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(fresh / PACKAGE)]
        place.root.must(command, "compile the runtime", hint="it was made for another Python than the node's")
        for folder, unused, names in os.walk(fresh):
            Path(folder).chmod(0o755)
            for name in names:
                (Path(folder) / name).chmod(0o644)
        # the name says that the content is whole: after a power cut it must not be there without it
        os.sync()
        fresh.rename(place.release(digest))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _folder(path: Path) -> None:
    """Make a folder that everybody may read, whatever the umask; one that is there keeps its mode."""
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o755)


def _write_launcher(place: Place, release: Path) -> None:
    path = release / "bin/hostdev"
    text = LAUNCHER.format(python=place.python)
    if read_text(path) == text.rstrip():
        return
    _folder(path.parent)
    fresh = path.with_name(".hostdev")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(path)


def _point(place: Place, name: str, digest: str) -> None:
    _link(place.base / name, f"releases/{digest}")


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _prune(place: Place) -> None:
    """Delete what neither link points to, and what an interrupted run left."""
    kept = {place.link("current"), place.link("previous")}
    for name in entries(place.base / "releases"):
        if name not in kept:
            shutil.rmtree(place.base / "releases" / name, ignore_errors=True)


def remove(place: Place) -> None:
    """Delete all releases, the links, and the folder when nothing of others is in it; a command of others stays."""
    if place.command and _command_state(place) == "ours":
        place.root.at(place.command).unlink()
    for name in ("current", "previous"):
        (place.base / name).unlink(missing_ok=True)
    shutil.rmtree(place.base / "releases", ignore_errors=True)
    with suppress(OSError):
        place.base.rmdir()

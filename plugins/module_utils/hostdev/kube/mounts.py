"""Which of our grant folders a process has among its mounts: holding the mount is holding the unit."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import PurePosixPath

_ESCAPED = re.compile(r"\\([0-7]{3})")


def granted(mountinfo: str, folders: Collection[tuple[str, int]]) -> frozenset[str]:
    """Return those of our grant folders that a mount table holds (/proc/PID/mountinfo, proc_pid_mountinfo(5)).

    folders: (path, device number of its file system). A mount counts when it is that file system's folder of that very
    name at that very path: a process may mount what it likes in a namespace of its own, but not what it cannot reach.
    """
    seen = set()
    # not splitlines: a path may hold whatever else Python takes for the end of a line
    for line in mountinfo.split("\n"):
        fields = line.split(" ", 5)
        if len(fields) > 5:
            major, _colon, minor = fields[2].partition(":")
            mounted, point = _plain(fields[3]), _plain(fields[4])
            if (point, os.makedev(int(major), int(minor))) in folders and _unit(point) == _unit(mounted):
                seen.add(point)
    return frozenset(seen)


def _unit(path: str) -> tuple[str, ...]:
    return PurePosixPath(path).parts[-2:]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), text)

"""The duties of a container's first process: every orphan becomes its child, and somebody has to reap it.

libvirt waits until a QEMU that it ended is gone; one that nobody reaps is never gone.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, List

from ..root import Root, entries, read_text

_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


def adopt_orphans() -> bool:
    """Make orphaned descendants our children; True when it is so (the first process of a container is that by birth)."""
    if os.getpid() == 1:
        return True
    import ctypes  # a container's launcher needs none

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap() -> dict[int, int]:
    """Reap every child that has ended; return pid -> exit code (minus the signal's number for one that was killed)."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def living(root: Root) -> list[int]:
    """Return the pids of our children, orphans included."""
    own = str(os.getpid())
    found: List[int] = []
    for name in entries(root.proc()):
        stat = read_text(root.proc(name, "stat")) if name.isdigit() else None
        # the name in parentheses may hold anything; state and parent follow the last ")"
        fields = stat.rpartition(")")[2].split() if stat else []
        if len(fields) > 1 and fields[1] == own:
            found.append(int(name))
    return found


def end_all(root: Root, patience: float) -> None:
    """End every child: SIGTERM, which lets QEMU write out its disks, and after `patience` seconds SIGKILL; reap them all."""
    deadline = time.monotonic() + patience
    asked: set[int] = set()
    while True:
        reap()
        left = living(root)
        if not left or time.monotonic() > deadline + 5.0:
            return
        hard = time.monotonic() > deadline
        for pid in left:
            if hard or pid not in asked:
                _send(pid, signal.SIGKILL if hard else signal.SIGTERM)
                asked.add(pid)
        time.sleep(0.02)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return

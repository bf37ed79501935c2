"""What makes a service a process: one at a time, and the signals by which it is told."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable

from ..device.faults import Busy, Fault

_WHAT = "start the service"
# who asks whether a service runs holds the lock for a moment
_TRIES, _TRY_SECONDS = 10, 0.05


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold a lock file for as long as the service runs; Busy, naming the holder, when another instance has it.

    Two instances would take each other's sockets without a word. The kernel lets go of the lock when its holder ends, so
    that nothing has to be cleaned up after a crash.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Fault(what=_WHAT, subject=str(lock), cause=str(error.strerror), hint="run it as root") from error
    try:
        try:
            _lock(handle)
        except OSError as error:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            cause = f"another instance runs (process {holder})"
            raise Busy(what=_WHAT, subject=str(lock), cause=cause, hint="stop it first: systemctl stop, or kill") from error
        # the number is for the message above alone, and a full disk no reason to serve nothing
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    for _try in range(_TRIES - 1):
        with suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_TRY_SECONDS)
    return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def signals(reload: Callable[[], None], wake: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Yield what says whether SIGTERM or SIGINT has come; it calls reload after a SIGHUP. wake: called from the handlers."""
    told: list[int] = []

    def note(number: int, _frame: object) -> None:
        told.append(number)
        wake()

    def stopping() -> bool:
        if signal.SIGHUP in told:
            told[:] = [number for number in told if number != signal.SIGHUP]
            reload()
        return bool(told)

    before: dict[int, Any] = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

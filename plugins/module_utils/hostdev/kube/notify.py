"""Telling the service manager how we are (sd_notify(3)), over the socket that it names, and others by the time of a file."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from .waking import Waker

log = logging.getLogger(__name__)

_BEAT_SECONDS = 30.0


def notify(state: str) -> bool:
    """Send a state such as "READY=1" to the manager; return False when there is none that listens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.warning("cannot tell the service manager %s: %s", state, error)
        return False
    return True


def watchdog_seconds() -> float:
    """Return within how many seconds the manager wants each sign of life (sd_watchdog_enabled(3)), infinity when it wants none."""
    asked, of = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    return int(asked) / 1e6 if asked.isdecimal() and int(asked) and of in ("", str(os.getpid())) else float("inf")


class Pulse:
    """A loop's sign of life, given while it waits: to a manager that wants it, and as the time of a file (at most 30 s old)."""

    def __init__(self, file: Path) -> None:
        """Give it by this file, which is another's and may be absent."""
        self._file = file
        asked = watchdog_seconds()
        self._asked = asked < float("inf")
        self._every = min(_BEAT_SECONDS, asked / 2)

    def beat(self) -> None:
        """Give one sign."""
        with suppress(OSError):
            os.utime(self._file)
        if self._asked:
            notify("WATCHDOG=1")

    def wait(self, waker: Waker, seconds: float, earliest: float) -> bytes:
        """Wait as the waker does, giving signs meanwhile."""
        end = time.monotonic() + seconds
        while True:
            self.beat()
            rest = end - time.monotonic()
            told = waker.wait(max(0.0, min(rest, self._every)), earliest)
            if told or rest <= self._every:
                return told

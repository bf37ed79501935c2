"""How a loop is woken: by whoever sets its waker, and by threads that follow sources of events whatever befalls them."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from contextlib import suppress
from typing import Callable, Optional

log = logging.getLogger(__name__)

# what woke: a file's coming or going, or the kernel's word about a device
FILE, DEVICE = b"f", b"d"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0


class Waker:
    """What many may set and one waits for; what is set before the one who waits may go on is one wake."""

    def __init__(self) -> None:
        """Begin unset. A pipe, since signal handlers set it too: they must never wait for a lock."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._first: Optional[float] = None
        self.since: Optional[float] = None

    def set(self, kind: bytes = FILE) -> None:
        """Wake the one who waits."""
        self._first = self._first or time.monotonic()
        with suppress(BlockingIOError):
            os.write(self._write, kind)

    def wait(self, seconds: float, earliest: float) -> bytes:
        """Return when set or after so many seconds, yet not before the monotonic time `earliest`; the kinds that it was set with.

        `since` is then the monotonic time at which it was first set, None when it was not.
        """
        select.select([self._read], [], [], seconds)
        rest = earliest - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        told = b""
        with suppress(BlockingIOError):
            while part := os.read(self._read, 4096):
                told += part
        self.since, self._first = self._first if told else None, None
        return told


class Follower:
    """A thread that follows a source of events until the process ends; whatever ends the source, a new one is opened.

    name: of the events, in the log. begin: opens the source and returns what waits for some events and takes them.
    wake: called when events may have been lost, that is when a source has ended and when its successor is open.
    """

    def __init__(self, name: str, begin: Callable[[], Callable[[], None]], wake: Callable[[], None]) -> None:
        """Open the source, so that it hears what happens from now on, and follow it; when it cannot be opened it is tried again."""
        self._name, self._begin, self._wake = name, begin, wake
        self._said = ""
        self._step: Optional[Callable[[], None]] = None
        try:
            self._step = begin()
        except Exception as error:  # noqa: BLE001
            self._say(error)
        self._thread = self._start()

    def keep(self) -> None:
        """Start the thread again should it have died."""
        if not self._thread.is_alive():
            log.error("%s events: the thread that follows them had died; started again", self._name)
            self._step = None
            self._thread = self._start()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._follow, name=self._name, daemon=True)
        thread.start()
        return thread

    def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if self._follow_once():
                pause = _FIRST_PAUSE
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _follow_once(self) -> bool:
        """Take some events, from a new source where the last one ended; return whether that was possible."""
        try:
            if self._step is None:
                self._step = self._begin()
                self._wake()
            self._step()
        # libraries raise what they like, and a thread that ends here would be missed by nobody
        except Exception as error:  # noqa: BLE001
            if self._step is not None:
                self._wake()
            self._step = None
            self._say(error)
            return False
        self._said = ""
        return True

    def _say(self, error: Exception) -> None:
        said = str(error) or type(error).__name__
        if said != self._said:
            log.warning("%s events: %s; they are followed anew", self._name, said)
        self._said = said

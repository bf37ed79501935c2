"""At most so many worker VMs on this machine at once (HOSTDEV_TEST_VMS, default 2): more of them only slow each other down."""

from __future__ import annotations

import fcntl
import os
import time
from typing import IO

from ..harness.cache import folder
from ..harness.say import say

_held: list[IO[str]] = []


def take() -> IO[str]:
    """Wait for a free place and return it; give() or the end of this process frees it.

    A process may hold one: two that hold one each and want another would wait for each other for ever.
    """
    if _held:
        raise RuntimeError("this process runs a worker VM already: end it first, or put the test into a file of its own")
    told = False
    while True:
        for number in range(int(os.environ.get("HOSTDEV_TEST_VMS", "2"))):
            place = open(folder() / f".vm-{number}.lock", "w", encoding="ascii")  # noqa: SIM115 - it lives as long as the VM
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                place.close()
            else:
                _held.append(place)
                return place
        if not told:
            told = True
            say("other worker VMs run on this machine: waiting for one to end")
        time.sleep(1)


def give(place: IO[str]) -> None:
    """Free a place."""
    _held.remove(place)
    place.close()

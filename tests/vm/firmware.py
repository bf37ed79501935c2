"""A watch over the emulated firmware: about one reboot in twenty ends in it for ever, before the boot loader is started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..harness.say import say

RESTART, STARTED = b"reboot: Restarting system", b"BdsDxe: starting"
_SECONDS = 120.0  # the firmware takes 8 on a quiet machine
_LOOK = 2.0


def waits(serial: bytes) -> bool:
    """Tell from the console's text whether the machine has restarted and its firmware has not started a boot loader since."""
    restarted = serial.rfind(RESTART)
    return restarted >= 0 and serial.find(STARTED, restarted) < 0


def watch(serial: Path, reset: Callable[[], None], running: Callable[[], bool]) -> None:
    """Reset the machine whenever its firmware has not come up for two minutes after a restart; returns at once."""
    threading.Thread(target=_follow, args=(serial, reset, running), name="firmware", daemon=True).start()


def _follow(serial: Path, reset: Callable[[], None], running: Callable[[], bool]) -> None:
    since = time.monotonic()
    while running():
        time.sleep(_LOOK)
        if not waits(serial.read_bytes() if serial.exists() else b""):
            since = time.monotonic()
        elif time.monotonic() - since > _SECONDS:
            say(f"the worker's firmware has not come up for {_SECONDS:.0f} s: resetting the machine")
            since = time.monotonic()
            with suppress(OSError, RuntimeError):
                reset()

"""Progress on the terminal: what a long step does, what it usually takes, what it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

STARTED = time.monotonic()


def say(text: str) -> None:
    """Write one line, stamped with the seconds since this process began to work."""
    sys.stdout.write(f"[{time.monotonic() - STARTED:6.1f}s] {text}\n")
    sys.stdout.flush()


@contextmanager
def step(text: str, usual: str = "") -> Iterator[None]:
    """Frame a step: say it at its start (with what it usually takes) and its measured time at its end."""
    say(f"{text} ..." + (f" (usually {usual})" if usual else ""))
    begin = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{text}: FAILED after {time.monotonic() - begin:.1f} s")
        raise
    say(f"{text}: {time.monotonic() - begin:.1f} s")

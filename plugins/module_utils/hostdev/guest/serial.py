"""The guest's serial output, from QEMU to this process's stdout, raw.

QEMU opens a serial "file" for writing; here that file is a FIFO. So nothing piles up on the node's disk, no daemon is
needed, and a reader sees each byte as it comes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import List, Optional

from ..device.faults import Fault

_BLOCK = 65536


class SerialCopy:
    """Copies what is written to FIFOs to a descriptor, one thread per FIFO."""

    def __init__(self, paths: List[Path], out: int = 1) -> None:
        self._out = out
        self._writers: List[int] = []
        self._threads: List[threading.Thread] = []
        for path in paths:
            self._begin(path)

    def _begin(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise Fault(what="make the guest's serial line", subject=str(path), cause=f"{error.strerror} (errno {error.errno})") from error
        # a writer of our own: without one the reader would see the end before QEMU opened the FIFO
        self._writers.append(os.open(path, os.O_WRONLY))
        os.set_blocking(reader, True)
        thread = threading.Thread(target=_copy, args=(reader, self._out), daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self, patience: float = 2.0) -> None:
        """Copy what QEMU left in the FIFOs, wait at most `patience` seconds for it, and end."""
        for writer in self._writers:
            os.close(writer)
        self._writers.clear()
        for thread in self._threads:
            thread.join(patience)


def _copy(reader: int, out: int) -> None:
    last: Optional[bytes] = None
    try:
        while block := os.read(reader, _BLOCK):
            _write(out, block)
            last = block
        if last and not last.endswith(b"\n"):
            _write(out, b"\n")
    except OSError:
        # nobody reads the log any more: the guest goes on, its output is lost
        while os.read(reader, _BLOCK):
            pass
    finally:
        os.close(reader)


def _write(out: int, block: bytes) -> None:
    while block:
        block = block[os.write(out, block) :]

"""The kernel's queue of file events (inotify(7)), by the calls of the library inotify and without its reader.

The library's own reader ends at an unmount and at a name that is no UTF-8, and drops the word of a full queue.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import NamedTuple

try:
    import inotify
    import inotify.calls
    import inotify.constants
except ImportError:
    inotify = None

# struct inotify_event of include/uapi/linux/inotify.h: wd, mask, cookie, len; the name follows, padded with zeros
_HEAD = struct.Struct("iIII")
_BYTES = 65536


class FileEvent(NamedTuple):
    """What happened: the watch by its number (-1 for the queue itself), the kinds as IN_ bits, the name in the folder or none."""

    watch: int
    kinds: int
    name: str


class FileQueue:
    """One queue and its watches; OSError or the library's InotifyError when the system refuses."""

    def __init__(self) -> None:
        """Make an empty one, which no child inherits."""
        self._handle: int = inotify.calls.inotify_init()
        os.set_inheritable(self._handle, False)

    def add(self, path: str, kinds: int) -> int:
        """Watch a path for these kinds and return the watch's number, which is another path's where both are one folder."""
        watch: int = inotify.calls.inotify_add_watch(self._handle, os.fsencode(path), kinds | inotify.constants.IN_MASK_ADD)
        return watch

    def remove(self, watch: int) -> None:
        """End a watch; one that ended with its folder is let be."""
        with suppress(inotify.calls.InotifyError):
            inotify.calls.inotify_rm_watch(self._handle, watch)

    def read(self) -> list[FileEvent]:
        """Wait for events and return them; OSError when the queue was full, as others are lost then."""
        data = os.read(self._handle, _BYTES)
        events = []
        at = 0
        while at < len(data):
            watch, kinds, _cookie, length = _HEAD.unpack_from(data, at)
            if kinds & inotify.constants.IN_Q_OVERFLOW:
                raise OSError("the queue was full")
            at += _HEAD.size + length
            events.append(FileEvent(watch, kinds, os.fsdecode(data[at - length : at].rstrip(b"\0"))))
        return events

    def close(self) -> None:
        """Give the queue and its watches back."""
        os.close(self._handle)

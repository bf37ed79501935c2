"""What wakes the device plugin: file events, device events of the kernel, and a slow clock for what neither of them tells.

Nothing is read from the events themselves: whoever is woken looks at the machine again.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Optional

from .plugin import Identity, identity

try:
    import pyudev
except ImportError:
    pyudev = None
try:
    import inotify
    import inotify.adapters
    import inotify.calls
    import inotify.constants
except ImportError:
    inotify = None

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.25
# what woke: a file's coming or going, or the kernel's word about a device
FILE, DEVICE = b"f", b"d"
_LOOK_WITHOUT_EVENTS = 1.0
_BLOCK = 3600
_SUBSYSTEMS = ("pci", "vfio", "vfio-dev", "mdev", "usb", "misc")


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


class FolderWatch:
    """Wakes on names that come to, leave, or are written in some folders; folders may be absent, come back or be replaced."""

    def __init__(self, folders: Mapping[Path, str], waker: Waker) -> None:
        """Watch folders for the names of a pattern (fnmatch), and their parents, in which they come back."""
        self._patterns = {str(folder): pattern for folder, pattern in folders.items()}
        self._names = {(str(folder.parent), folder.name) for folder in folders}
        self._folders = list(dict.fromkeys([*folders, *(folder.parent for folder in folders)]))
        self._nodes: frozenset[tuple[str, str]] = frozenset()
        self._armed: dict[Path, Optional[Identity]] = {}
        self._lock = threading.Lock()
        self._waker = waker
        self._adapter: Any = inotify.adapters.Inotify(block_duration_s=_BLOCK) if inotify is not None else None
        if self._adapter is None:
            log.warning("no inotify library: files are looked at every %.0f s; install python3-inotify", _LOOK_WITHOUT_EVENTS)
        else:
            logging.getLogger("inotify").setLevel(logging.ERROR)
            self.arm()
            threading.Thread(target=self._follow, name="inotify", daemon=True).start()

    @property
    def longest_wait(self) -> float:
        """Return after how many seconds to look without an event."""
        return _LOOK_WITHOUT_EVENTS if self._adapter is None else float("inf")

    def arm(self, nodes: Iterable[Path] = ()) -> None:
        """Watch what appeared or was replaced since the last call. nodes: device nodes to wake for, wherever they are."""
        if self._adapter is None:
            return
        self._nodes = frozenset((str(node.parent), node.name) for node in nodes)
        with self._lock:
            for folder in dict.fromkeys([*self._folders, *(Path(folder) for folder, _name in self._nodes)]):
                now = identity(folder)
                if now == self._armed.get(folder):
                    continue
                self._forget(folder)
                self._armed[folder] = now if now is not None and self._add(folder) else None

    def _add(self, folder: Path) -> bool:
        kinds = inotify.constants
        mask = kinds.IN_CREATE | kinds.IN_DELETE | kinds.IN_MOVED_FROM | kinds.IN_MOVED_TO | kinds.IN_DELETE_SELF | kinds.IN_MOVE_SELF
        if str(folder) in self._patterns:
            # a file may be written in place; of the parents, such as /dev, that would be too much to hear
            mask |= kinds.IN_CLOSE_WRITE
        try:
            self._adapter.add_watch(str(folder), mask)
        except inotify.calls.InotifyError:
            return False
        return True

    def _forget(self, folder: Path) -> None:
        if self._armed.pop(folder, None) is None:
            return
        try:
            self._adapter.remove_watch(str(folder))
        except inotify.calls.InotifyError:
            # the kernel dropped the watch with the folder; the library has dropped its own record by now
            log.debug("the watch of %s had gone with it", folder)

    def _concerns(self, folder: str, name: str) -> bool:
        # a parent tells of much else: /dev of every terminal, the kubelet's folder of every checkpoint
        known = self._patterns.get(folder)
        return (known is not None and fnmatch(name, known)) or (folder, name) in self._names or (folder, name) in self._nodes

    def _follow(self) -> None:
        while True:
            for _header, kinds, folder, name in self._adapter.event_gen(yield_nones=False):
                if "IN_IGNORED" in kinds:
                    # its successor may have the very inode: forget it here, or it would pass for watched
                    with self._lock:
                        self._forget(Path(folder))
                if not name or self._concerns(folder, name):
                    self._waker.set()
            # a full queue or an unmount ends the library's loop: look, and go on
            self._waker.set()
            time.sleep(MERGE_SECONDS)


def watch_devices(waker: Waker) -> bool:
    """Wake on each kernel event of a device that may be served (bound, unbound, added, removed); return whether that is possible."""
    if pyudev is None:
        log.warning("no pyudev: a change of a driver is seen at the next slow check; install python3-pyudev")
        return False
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in _SUBSYSTEMS:
            monitor.filter_by(subsystem)
        monitor.start()
    except (OSError, ImportError) as error:
        log.warning("no device events: %s; a change of a driver is seen at the next slow check", error)
        return False
    threading.Thread(target=_follow_devices, args=(monitor, waker), name="udev", daemon=True).start()
    return True


def _follow_devices(monitor: Any, waker: Waker) -> None:
    while True:
        if monitor.poll(timeout=None) is not None:
            waker.set(DEVICE)

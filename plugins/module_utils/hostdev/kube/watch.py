"""What wakes the device plugin: file events, device events of the kernel, and a slow clock for what neither of them tells.

Nothing is read from the events themselves: whoever is woken looks at the machine again.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
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
_LOOK_WITHOUT_EVENTS = 1.0
_BLOCK = 3600


class Waker:
    """What many may set and one waits for; what is set within MERGE_SECONDS of the last look is one wake."""

    def __init__(self) -> None:
        """Begin unset. A pipe, since signal handlers set it too: they must never wait for a lock."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """Wake the one who waits."""
        with suppress(BlockingIOError):
            os.write(self._write, b".")

    def wait(self, seconds: float, last: float) -> None:
        """Return when set or after so many seconds, yet not sooner than MERGE_SECONDS after the monotonic time `last`."""
        select.select([self._read], [], [], seconds)
        rest = last + MERGE_SECONDS - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass


class FolderWatch:
    """Wakes on every name that comes to or leaves some folders; folders may be absent, come back or be replaced."""

    def __init__(self, folders: Iterable[Path], waker: Waker) -> None:
        """Watch the folders and their parents, in which they come back."""
        listed = list(folders)
        self._folders = list(dict.fromkeys([*listed, *(folder.parent for folder in listed)]))
        self._whole = {str(folder) for folder in listed}
        self._names = {(str(folder.parent), folder.name) for folder in listed}
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

    def arm(self) -> None:
        """Watch what appeared or was replaced since the last call."""
        if self._adapter is None:
            return
        with self._lock:
            for folder in self._folders:
                now = identity(folder)
                if now == self._armed.get(folder):
                    continue
                self._forget(folder)
                self._armed[folder] = now if now is not None and self._add(folder) else None

    def _add(self, folder: Path) -> bool:
        kinds = inotify.constants
        mask = kinds.IN_CREATE | kinds.IN_DELETE | kinds.IN_MOVED_FROM | kinds.IN_MOVED_TO | kinds.IN_DELETE_SELF | kinds.IN_MOVE_SELF
        if str(folder) in self._whole:
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

    def _follow(self) -> None:
        while True:
            for _header, kinds, folder, name in self._adapter.event_gen(yield_nones=False):
                if "IN_IGNORED" in kinds:
                    # its successor may have the very inode: forget it here, or it would pass for watched
                    with self._lock:
                        self._forget(Path(folder))
                # a parent tells of much else: /dev of every terminal
                if folder in self._whole or not name or (folder, name) in self._names:
                    self._waker.set()
            # a full queue or an unmount ends the library's loop: look, and go on
            self._waker.set()
            time.sleep(MERGE_SECONDS)


def watch_devices(waker: Waker) -> bool:
    """Wake on each kernel event of a PCI or VFIO device (bound, unbound, added, removed); return whether that is possible."""
    if pyudev is None:
        log.warning("no pyudev: a change of a driver is seen at the next slow check; install python3-pyudev")
        return False
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in ("pci", "vfio", "vfio-dev"):
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
            waker.set()

"""What wakes the device plugin: file events, device events of the kernel, and a slow clock for what neither of them tells.

Nothing is read from the events themselves: whoever is woken looks at the machine again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from .filequeue import FileEvent, FileQueue
from .plugin import Identity, identity
from .waking import DEVICE, Follower, Waker

try:
    import inotify
    import inotify.calls
    import inotify.constants
except ImportError:
    inotify = None
try:
    import pyudev
except ImportError:
    pyudev = None

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.25
_LOOK_WITHOUT_EVENTS = 1.0
_SUBSYSTEMS = ("pci", "vfio", "vfio-dev", "mdev", "usb", "misc")
# what udev takes for itself, and newer ones for every monitor; memory that is used only while events wait
_DEVICE_BUFFER = 128 << 20


class FolderWatch:
    """Wakes on names that come to, leave, or are written in some folders; folders may be absent, come back or be replaced."""

    def __init__(self, folders: Mapping[Path, str], waker: Waker) -> None:
        """Watch folders for the names of a pattern (fnmatch), and their parents, in which they come back."""
        self._patterns = {str(folder): pattern for folder, pattern in folders.items()}
        self._names = {(str(folder.parent), folder.name) for folder in folders}
        self._folders = list(dict.fromkeys([*folders, *(folder.parent for folder in folders)]))
        self._nodes: frozenset[tuple[str, str]] = frozenset()
        self._armed: dict[Path, tuple[Identity, int]] = {}
        self._paths: dict[int, set[str]] = {}
        self._lock = threading.Lock()
        self._waker = waker
        self._queue: Optional[FileQueue] = None
        self._deaf = False
        self._follower: Optional[Follower] = None
        if inotify is None:
            log.warning("no inotify library: files are looked at every %.0f s; install python3-inotify", _LOOK_WITHOUT_EVENTS)
        else:
            self._follower = Follower("file", self._begin, waker.set)

    @property
    def longest_wait(self) -> float:
        """Return after how many seconds to look without an event; it changes when events can be had no more, or again."""
        return _LOOK_WITHOUT_EVENTS if self._queue is None or self._deaf else float("inf")

    def arm(self, nodes: Iterable[Path] = ()) -> None:
        """Watch what appeared or was replaced since the last call. nodes: device nodes to wake for, wherever they are."""
        self._nodes = frozenset((str(node.parent), node.name) for node in nodes)
        if self._follower is not None:
            self._follower.keep()
            with self._lock:
                self._arm()

    def _begin(self) -> Callable[[], None]:
        with self._lock:
            former, self._queue = self._queue, None
            if former is not None:
                former.close()
            self._armed.clear()
            self._paths.clear()
            self._queue = queue = FileQueue()
            self._arm()
        return lambda: self._take(queue.read())

    def _arm(self) -> None:
        if self._queue is None:
            return
        refused = []
        for folder in dict.fromkeys([*self._folders, *(Path(folder) for folder, _name in self._nodes)]):
            now = identity(folder)
            before = self._armed.get(folder)
            if before is not None and before[0] == now:
                continue
            if before is not None:
                self._queue.remove(before[1])
                del self._armed[folder]
            if now is not None:
                try:
                    watch = self._queue.add(str(folder), self._kinds(str(folder)))
                except inotify.calls.InotifyError as error:
                    refused.append(f"{folder}: {error}")
                else:
                    self._armed[folder] = now, watch
                    self._paths.setdefault(watch, set()).add(str(folder))
        if refused and not self._deaf:
            log.warning("cannot watch %s; files are looked at every %.0f s until it can be", ", ".join(refused), _LOOK_WITHOUT_EVENTS)
        self._deaf = bool(refused)

    def _kinds(self, folder: str) -> int:
        every = inotify.constants
        kinds = every.IN_CREATE | every.IN_DELETE | every.IN_MOVED_FROM | every.IN_MOVED_TO | every.IN_DELETE_SELF | every.IN_MOVE_SELF
        if folder in self._patterns:
            # a file may be written in place; of the parents, such as /dev, that would be too much to hear
            kinds |= every.IN_CLOSE_WRITE
        return int(kinds)

    def _take(self, events: list[FileEvent]) -> None:
        for event in events:
            with self._lock:
                folders = self._paths.get(event.watch, set())
                if event.kinds & inotify.constants.IN_IGNORED:
                    # deleted, unmounted or replaced; its successor may have the very inode: forget it, or it would pass for watched
                    self._paths.pop(event.watch, None)
                    self._armed = {folder: one for folder, one in self._armed.items() if one[1] != event.watch}
            if not event.name or any(self._concerns(folder, event.name) for folder in folders):
                self._waker.set()

    def _concerns(self, folder: str, name: str) -> bool:
        # a parent tells of much else: /dev of every terminal, the kubelet's folder of every checkpoint
        known = self._patterns.get(folder)
        return (known is not None and fnmatch(name, known)) or (folder, name) in self._names or (folder, name) in self._nodes


class DeviceWatch:
    """Wakes on each kernel event of a device that may be served: bound, unbound, added, removed."""

    def __init__(self, waker: Waker) -> None:
        """Listen from now on, where that is possible; the log says where it is not."""
        self._waker = waker
        self._follower: Optional[Follower] = None
        if pyudev is None:
            log.warning("no pyudev: a change of a driver is seen at the next slow check; install python3-pyudev")
        else:
            self._follower = Follower("device", self._begin, partial(waker.set, DEVICE))

    def keep(self) -> None:
        """Begin to listen again should that have ended."""
        if self._follower is not None:
            self._follower.keep()

    def _begin(self) -> Callable[[], None]:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in _SUBSYSTEMS:
            monitor.filter_by(subsystem)
        # without CAP_NET_ADMIN it is refused after the kernel gave what net.core.rmem_max allows
        with suppress(OSError):
            monitor.set_receive_buffer_size(_DEVICE_BUFFER)
        monitor.start()

        def step() -> None:
            # OSError (ENOBUFS) when events were lost
            if monitor.poll(timeout=None) is not None:
                self._waker.set(DEVICE)

        return step

"""The hand-over of /dev/iommu: sockets at which a container is given an open descriptor, once for each of its starts.

libvirt would have to switch the descriptor's accounting of locked memory to that of the process, which takes
CAP_SYS_RESOURCE: so the descriptor comes from here (KubeVirt: iommufd_device.go, and the launcher's iommufd.go). To the first
that connects goes one zero byte with the descriptor (SCM_RIGHTS); it sends one byte back. The socket's file is gone by then.

The kubelet stores Allocate's answer and mounts the same path at every start of the container, and what is not there to be
mounted either fails the start or is made a folder by the container runtime. So the socket is made

- by Allocate, and before every start (PreStartContainer, which the kubelet calls for this kind only) where the former one is
  spent: a container that crashed gets another descriptor, also after a restart of the machine;
- by a service that starts, for every container of the kubelet's store: it cannot know which of them has started.

It waits without limit of time, and the descriptor is opened when somebody comes: a slow image costs nothing. What remains:
between the start of a container and its connection the service must not restart, for the container holds the file of the
former socket; it is refused the connection then, and its next start mends it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from ..device.faults import Fault, Refused
from ..device.nodes import IOMMU
from ..root import Root
from .doors import label
from .plugin import identity

log = logging.getLogger(__name__)

MOST = 256
BYTE_SECONDS = 10.0
_BACKLOG = 1
_PAUSE_SECONDS = 0.1
_WHAT = "hand over /dev/iommu"
# include/uapi/linux/iommufd.h: IOMMU_OPTION; struct iommu_option {size, option_id, op, reserved, object_id, val64} with
# IOMMU_OPTION_RLIMIT_MODE and IOMMU_OPTION_OP_SET: 1 counts locked memory by process
_OPTION, _BY_PROCESS = 0x3B87, struct.pack("=IIHHIQ", 24, 0, 0, 0, 0, 1)


def open_iommu(root: Root) -> int:
    """Return a descriptor of /dev/iommu that counts locked memory by process; Refused with what the system said."""
    place = root.at(IOMMU)
    try:
        handle = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(f"it cannot be opened: {error.strerror}") from error
    try:
        fcntl.ioctl(handle, _OPTION, _BY_PROCESS)
    except OSError as error:
        os.close(handle)
        raise _refused(f"its memory cannot be counted by process: {error.strerror}") from error
    return handle


def _refused(cause: str) -> Refused:
    return Refused(
        what=_WHAT,
        subject=IOMMU,
        cause=cause,
        hint="it takes a kernel with iommufd and CAP_SYS_RESOURCE; restart the service if the module came after it",
    )


class _Waiting:
    """A socket that nobody has connected to yet; Fault where it cannot be made."""

    def __init__(self, root: Root, path: str) -> None:
        self.path = Path(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._bind()
        except OSError as error:
            self.listener.close()
            raise Fault(what=_WHAT, subject=path, cause=f"{error.strerror} (errno {error.errno})") from error
        self._identity = identity(self.path)
        label(root, self.path)

    def _bind(self) -> None:
        # no other user of the host reaches a socket: its container has the file by a mount, and is of any uid
        for folder, mode in ((self.path.parent.parent, 0o700), (self.path.parent, 0o755)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        if self.path.is_dir():
            # made by a container runtime that found nothing to mount
            self.path.rmdir()
        self.path.unlink(missing_ok=True)
        self.listener.bind(str(self.path))
        self.path.chmod(0o666)
        self.listener.listen(_BACKLOG)

    @property
    def in_place(self) -> bool:
        """Return whether the file is still our socket's."""
        return self._identity is not None and identity(self.path) == self._identity

    @property
    def is_open(self) -> bool:
        """Return whether anybody can connect still."""
        return self.listener.fileno() >= 0

    def close(self) -> None:
        """Let nobody connect any more, and remove the file."""
        if self.in_place:
            self.path.unlink(missing_ok=True)
        self.listener.close()


class HandOver:
    """All sockets, and one thread that attends them, which begins with the first one.

    opener: returns a descriptor to give away, or raises a fault. At most MOST sockets wait: the oldest gives way, which only a
    container that is just starting could notice.
    """

    def __init__(self, root: Root, opener: Callable[[Root], int] = open_iommu) -> None:
        """Make nothing yet."""
        self._root = root
        self._open = partial(opener, root)
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._unheard: dict[socket.socket, tuple[float, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._orders: deque[Callable[[], None]] = deque()
        self._thread: Optional[threading.Thread] = None
        self._ending = False
        self._bell, self._cord = socket.socketpair()
        for end in (self._bell, self._cord):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear_the_bell)

    def prepare(self, path: str) -> None:
        """Have a socket wait at a path; Fault when there can be none, or no descriptor to hand over."""
        os.close(self._open())
        self._wait_at(path)

    def restore(self, folder: str, held: Collection[str]) -> None:
        """Have a socket wait at every path that a container holds, and remove what an earlier service left below the folder."""
        for left in [one for one in Path(folder).glob("*/*.sock") if one.is_socket() and str(one) not in held]:
            left.unlink(missing_ok=True)
        for path in held:
            self._restored(path)

    def _restored(self, path: str) -> None:
        try:
            self._wait_at(path)
        except Fault as fault:
            log.warning("%s", fault.text())

    def stop(self) -> None:
        """End the thread, close all sockets and remove their files."""
        self._ending = True
        self._order(lambda: None)
        if self._thread is not None:
            self._thread.join()
        self._obey()
        for connection in self._unheard:
            connection.close()
        for one in self._waiting.values():
            one.close()
        self._waiting.clear()
        self._selector.close()
        self._bell.close()
        self._cord.close()

    def _wait_at(self, path: str) -> None:
        with self._lock:
            former = self._waiting.get(path)
            if former is not None and former.in_place:
                return
            made = _Waiting(self._root, path)
            self._waiting.pop(path, None)
            self._waiting[path] = made
            crowd = [self._waiting.pop(one) for one in list(self._waiting)[:-MOST]]
            for one in [*([former] if former else []), *crowd]:
                self._order(partial(self._drop, one))
            self._order(partial(self._attend, made))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="iommufd", daemon=True)
                self._thread.start()

    def _order(self, act: Callable[[], None]) -> None:
        self._orders.append(act)
        try:
            self._cord.send(b"!")
        except BlockingIOError:
            log.debug("the bell rings already")

    def _hear_the_bell(self) -> None:
        self._bell.recv(4096)
        self._obey()

    def _obey(self) -> None:
        while self._orders:
            self._do(self._orders.popleft())

    def _run(self) -> None:
        while not self._ending:
            ends = [until for until, _path in self._unheard.values()]
            patience = max(min(ends) - time.monotonic(), 0.0) if ends else None
            for key, _mask in self._selector.select(patience):
                self._do(key.data)
            self._do(self._look_at_the_clock)

    @staticmethod
    def _do(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:  # one container's trouble must not end the service of all others
            log.exception("handing over %s", IOMMU)
            time.sleep(_PAUSE_SECONDS)

    def _attend(self, one: _Waiting) -> None:
        self._selector.register(one.listener, selectors.EVENT_READ, partial(self._give, one))

    def _drop(self, one: _Waiting) -> None:
        # who connects may be served at the moment in which the socket is given up
        if one.is_open:
            self._selector.unregister(one.listener)
            one.close()

    def _give(self, one: _Waiting) -> None:
        if not one.is_open:
            return
        try:
            connection, _address = one.listener.accept()
        except OSError as error:
            log.warning("%s: nobody could be let in: %s", one.path, error)
            time.sleep(_PAUSE_SECONDS)
            return
        with self._lock:
            if self._waiting.get(str(one.path)) is one:
                del self._waiting[str(one.path)]
        self._drop(one)
        connection.setblocking(False)
        try:
            self._send(connection)
        except (Fault, OSError) as error:
            log.error("%s: nothing was handed over: %s", one.path, error)  # noqa: TRY400
            connection.close()
            return
        log.info("%s: handed over a descriptor of %s", one.path, IOMMU)
        self._unheard[connection] = (time.monotonic() + BYTE_SECONDS, str(one.path))
        self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, connection))

    def _send(self, connection: socket.socket) -> None:
        handle = self._open()
        try:
            # it fits into an empty socket's buffer: whoever does not read keeps nobody waiting
            connection.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", handle))], socket.MSG_NOSIGNAL)
        finally:
            os.close(handle)

    def _hear(self, connection: socket.socket) -> None:
        try:
            came = connection.recv(1)
        except OSError:
            came = b""
        self._let_go(connection, heard=bool(came))

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for connection in [one for one, (until, _path) in self._unheard.items() if until <= now]:
            self._let_go(connection, heard=False)

    def _let_go(self, connection: socket.socket, *, heard: bool) -> None:
        _until, path = self._unheard.pop(connection)
        self._selector.unregister(connection)
        if not heard:
            log.warning("%s: the container did not say that it has the descriptor", path)
        connection.close()

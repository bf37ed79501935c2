"""The process at the other end of a grant socket, held so that another one with its number is never taken for it."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from ..device.faults import Absent, Fault, Refused
from ..root import Root, read_text

_SO_PEERPIDFD = 77  # include/uapi/asm-generic/socket.h, Linux 6.5
_CREDENTIALS = struct.Struct("iII")
_MOST = 1 << 20  # a container has some dozen mounts; whoever makes a hundred thousand would have us read for a second
_WHAT = "attend to a launcher"


@dataclass(frozen=True)
class Peer:
    """A held process. pid, uid, gid: as this machine numbers them. folder: its /proc folder, as an open descriptor.

    A descriptor of /proc/PID belongs to the process and not to its number: once the process is gone, so is all below.
    remembered: whether it is the kernel that says who connected; otherwise it is what bore the number at our first look.
    cgroup: what its /proc folder says of that, which is its container's own.
    """

    pid: int
    uid: int
    gid: int
    pidfd: int
    folder: int
    remembered: bool = True
    cgroup: str = ""

    @property
    def label(self) -> str:
        """Return how messages name it."""
        return _label(self.pid, self.uid)

    def must_live(self) -> None:
        """Raise Absent when the process has ended."""
        # a pidfd becomes readable at the end of its process; asking by signal would need CAP_KILL
        watched = select.poll()
        watched.register(self.pidfd, select.POLLIN)
        if watched.poll(0):
            raise Absent(what=_WHAT, subject=self.label, cause="it has ended")

    def read(self, name: str) -> str:
        """Return the text of a file of its /proc folder; Refused when that is over 1 MiB."""
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with os.fdopen(handle, "rb") as file:
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise Refused(what=_WHAT, subject=self.label, cause=f"its {name} has more than {_MOST} bytes")
        return data.decode("utf-8", "surrogateescape")

    def close(self) -> None:
        """Let the process go."""
        os.close(self.folder)
        os.close(self.pidfd)


def hold(root: Root, connection: socket.socket) -> Peer:
    """Return the process that connected, held by a pidfd from here on; Absent when it is gone, Refused for one of another machine."""
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if pid <= 0:
        raise Refused(
            what=_WHAT,
            subject=f"uid {uid}",
            cause="its process is not in our pid namespace",
            hint="run the service in the host's pid namespace",
        )
    try:
        with ExitStack() as held:
            pidfd, began = _pidfd(root, connection, pid)
            held.callback(os.close, pidfd)
            folder = os.open(root.proc(str(pid)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, folder)
            peer = Peer(pid, uid, gid, pidfd, folder, remembered=began is None)
            # alive now means that the number was its own when the folder was opened
            peer.must_live()
            if began is not None:
                _must_be(root, peer, began)
            peer = replace(peer, cgroup=peer.read("cgroup"))
            held.pop_all()
            return peer
    except OSError as error:
        raise _lost(_label(pid, uid), error) from error


def refuse_host(root: Root, peer: Peer) -> None:
    """Raise Refused for a process in the host's own mount namespace: what it sees as its nodes are the host's."""
    # the first process may hide its own; kthreadd, process 2, lives where the kernel began
    hosts = [_namespace(root.proc(pid, "ns", "mnt")) for pid in ("1", "2")]
    theirs = _namespace(Path("ns/mnt"), peer.folder)
    if theirs is None or not any(hosts):
        whose = peer.label if theirs is None else "process 1"
        cause = "its mount namespace cannot be read"
        raise Fault(what=_WHAT, subject=whose, cause=cause, hint="the service needs CAP_SYS_PTRACE and the host's pid namespace")
    if theirs in (*hosts, _namespace(root.proc("self", "ns", "mnt"))):
        raise Refused(
            what=_WHAT, subject=peer.label, cause="it runs in the host's mount namespace", hint="only containers are given devices"
        )


def _namespace(path: Path, folder: Optional[int] = None) -> Optional[tuple[int, int]]:
    try:
        state = os.stat(path, dir_fd=folder)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _pidfd(root: Root, connection: socket.socket, pid: int) -> tuple[int, Optional[str]]:
    """Return a pidfd of who connected, and None; on kernels that do not remember that, of what bears the number now, and when it began."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD), None
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    began = _start_time(root, pid)
    return os.pidfd_open(pid), began


def _must_be(root: Root, peer: Peer, began: str) -> None:
    """Raise Absent when the number went to another process: one that began later, or of another user."""
    ids = [line.split()[2] for line in peer.read("status").split("\n") if line.startswith(("Uid:", "Gid:"))]
    if _start_time(root, peer.pid) != began or ids != [str(peer.uid), str(peer.gid)]:
        raise Absent(what=_WHAT, subject=peer.label, cause="its number went to another process")


def _label(pid: int, uid: int) -> str:
    return f"process {pid} (uid {uid})"


def _lost(label: str, error: OSError) -> Fault:
    # EINVAL: a kernel that has no pidfd of a process that was reaped already
    if error.errno in {errno.ENOENT, errno.ESRCH, errno.EINVAL}:
        return Absent(what=_WHAT, subject=label, cause=f"it has ended ({error.strerror})")
    return Fault(what=_WHAT, subject=label, cause=f"it cannot be held: {error.strerror}")


def _start_time(root: Root, pid: int) -> str:
    """Return field 22 of /proc/PID/stat (proc_pid_stat(5)); the name in field 2 may hold anything, so count from its end."""
    text = read_text(root.proc(str(pid), "stat"))
    return text.rpartition(")")[2].split()[19] if text else ""

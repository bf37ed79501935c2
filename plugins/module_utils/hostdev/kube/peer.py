"""The process at the other end of a grant socket, held so that another one with its number is never taken for it."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..device.faults import Absent, Fault, Refused
from ..root import Root, read_text

_SO_PEERPIDFD = 77  # include/uapi/asm-generic/socket.h, Linux 6.5
_CREDENTIALS = struct.Struct("iII")
_WHAT = "attend to a launcher"


@dataclass(frozen=True)
class Peer:
    """A held process. pid, uid, gid: as this machine numbers them. folder: its /proc folder, as an open descriptor.

    A descriptor of /proc/PID belongs to the process and not to its number: once the process is gone, so is all below.
    """

    pid: int
    uid: int
    gid: int
    pidfd: int
    folder: int

    @property
    def label(self) -> str:
        """Return how messages name it."""
        return f"process {self.pid} (uid {self.uid})"

    def must_live(self) -> None:
        """Raise Absent when the process has ended."""
        # a pidfd becomes readable at the end of its process; asking by signal would need CAP_KILL
        watched = select.poll()
        watched.register(self.pidfd, select.POLLIN)
        if watched.poll(0):
            raise Absent(what=_WHAT, subject=self.label, cause="it has ended")

    def read(self, name: str) -> str:
        """Return the text of a file of its /proc folder."""
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

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
    began = _start_time(root, pid)
    pidfd = _pidfd(connection, pid)
    try:
        folder = os.open(root.proc(str(pid)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        os.close(pidfd)
        raise _gone(pid, uid, error) from error
    peer = Peer(pid, uid, gid, pidfd, folder)
    try:
        # alive now means that the number was its own when the folder was opened
        peer.must_live()
        if began is None or _start_time(root, pid) != began:
            raise Absent(what=_WHAT, subject=peer.label, cause="its number went to another process")
    except Fault:
        peer.close()
        raise
    return peer


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


def _pidfd(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the process: the kernel's own memory of who connected, or what bears the number now."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise _gone(pid, -1, error) from error
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise _gone(pid, -1, error) from error


def _gone(pid: int, uid: int, error: OSError) -> Absent:
    return Absent(what=_WHAT, subject=f"process {pid} (uid {uid})", cause=f"it has ended ({error.strerror})")


def _start_time(root: Root, pid: int) -> Optional[str]:
    """Return field 22 of /proc/PID/stat (proc_pid_stat(5)); the name in field 2 may hold anything, so count from its end."""
    text = read_text(Path(root.proc(str(pid), "stat")))
    return text.rpartition(")")[2].split()[19] if text else None

"""A unit's folder and the listening socket in it, as containers find them."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from pathlib import Path

from ..device.faults import Fault
from ..device.grant import SOCKET
from ..root import Root, read_text
from .plugin import identity

log = logging.getLogger(__name__)

_BACKLOG = 128  # a node that starts starts all its launchers, and those of one resource may share a door
_DRAFT = ".new"  # no longer than the socket's own name, since that may be as long as a path of a socket may be
_LABEL = b"system_u:object_r:container_file_t:s0"


class Door:
    """The socket of one unit's folder, listening from the moment that it is made; Fault where folder or socket cannot be."""

    def __init__(self, root: Root, folder: str) -> None:
        """Make the folder where it is not, and bind the socket in place of an earlier one."""
        self.folder = folder
        self._path = Path(folder) / SOCKET
        _make_folder(root, Path(folder))
        self.socket = _listen(root, self._path)
        self._identity = identity(self._path)

    @property
    def in_place(self) -> bool:
        """Return whether the socket in the folder is still ours."""
        return self._identity is not None and identity(self._path) == self._identity

    @property
    def known_as(self) -> tuple[str, int]:
        """Return folder and device number of its file system, as a mount table tells them."""
        return self.folder, self._identity[0] if self._identity else 0

    def remove(self) -> None:
        """Take the socket out of the folder if it is still ours; the folder stays, since a container may hold it."""
        if self.in_place:
            self._path.unlink(missing_ok=True)


def _make_folder(root: Root, folder: Path) -> None:
    try:
        # root's alone above the resource: no other user of the host may reach a socket. A container runtime that came
        # first after a boot has made them all with its own mode
        for place, mode in ((folder.parent.parent, 0o700), (folder.parent, 0o755), (folder, 0o755)):
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(mode)
        label(root, folder)
    except OSError as error:
        raise Fault(what="make a grant folder", subject=str(folder), cause=f"{error.strerror} (errno {error.errno})") from error


def label(root: Root, path: Path) -> None:
    """Let container domains reach the path where SELinux is on (its policy, container.te)."""
    if read_text(root.sysfs("fs", "selinux", "enforce")) is None:
        return
    try:
        os.setxattr(path, "security.selinux", _LABEL, follow_symlinks=False)
    except OSError as error:
        log.warning("cannot label %s as %s: %s", path, _LABEL.decode(), error)


def _listen(root: Root, path: Path) -> socket.socket:
    """Return a socket that listens at the path, which it takes over when everybody may connect, as the container's user is any uid."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    draft = path.with_name(_DRAFT)
    try:
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        _open_to_all(draft)
        label(root, draft)
        listener.listen(_BACKLOG)
        draft.replace(path)
    except OSError as error:
        listener.close()
        raise Fault(what="open a grant socket", subject=str(path), cause=str(error)) from error
    return listener


def _open_to_all(path: Path) -> None:
    # not by its name, which could be made a link by then, and not by the umask, which is all threads' own
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), str(path))
        os.chmod(f"/proc/self/fd/{handle}", 0o666)  # noqa: S103
    finally:
        os.close(handle)

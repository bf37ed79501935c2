"""A unit's folder and the listening socket in it, as containers find them."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from ..device.faults import Fault
from ..device.grant import SOCKET
from ..root import Root, read_text
from .plugin import identity

log = logging.getLogger(__name__)

_BACKLOG = 128  # a node that starts starts all its launchers, and those of one resource may share a door
_LABEL = b"system_u:object_r:container_file_t:s0"


class Door:
    """The socket of one unit's folder, listening from the moment that it is made; Fault where folder or socket cannot be."""

    def __init__(self, root: Root, folder: str) -> None:
        """Make the folder where it is not, and bind the socket in place of an earlier one."""
        self.folder = folder
        self._path = Path(folder) / SOCKET
        _make_folder(root, Path(folder))
        self.socket = _listen(self._path)
        self._identity = identity(self._path)
        label(root, self._path)

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


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        path.unlink(missing_ok=True)
        # born 0666, as the container's user is any uid; a later chmod could be led astray by who can write the folder
        before = os.umask(0o111)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Fault(what="open a grant socket", subject=str(path), cause=str(error)) from error
    return listener

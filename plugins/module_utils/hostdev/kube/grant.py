"""The grant sockets: one folder and socket per unit, at which a launcher asks for its nodes and its memory-lock limit.

Holding the mount of the folder is holding the unit, so nobody is looked up; what the peer itself is, is checked.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional

from ..device.faults import Fault, Refused, Timeout
from ..device.grant import LONGEST_REQUEST, SOCKET, Answer, Request, decode_request, encode_answer, unit_folder
from ..root import Root, read_text
from . import memlock, ownership
from .answers import Offer, cdev_nodes, group_nodes
from .peer import Peer, hold, refuse_host
from .plugin import Identity, identity

log = logging.getLogger(__name__)

LINE_SECONDS = 3.0
REST_SECONDS = 0.1
AT_ONCE = 4
_BACKLOG = 16
_LABEL = b"system_u:object_r:container_file_t:s0"
Attend = Callable[[Peer, Request], Answer]


@dataclass(frozen=True)
class Place:
    """One unit's folder. required, optional: nodes that the peer's container must and may have."""

    resource: str
    unit: str
    folder: str
    required: tuple[str, ...]
    optional: tuple[str, ...]


def place_of(offer: Offer, grants: str) -> Place:
    """Return where and over what a unit is granted."""
    unit = offer.unit
    return Place(unit.resource, unit.group, unit_folder(unit.resource, unit.group, grants), group_nodes(unit), cdev_nodes(unit))


def attend(root: Root, peer: Peer, request: Request, place: Place, folders: Collection[tuple[str, int]]) -> Answer:
    """Check the peer and do what it asks: all checks before the first change."""
    refuse_host(root, peer)
    if request.memlock_bytes:
        memlock.check_bound(root, peer, request.memlock_bytes, folders)
    nodes = ownership.give_nodes(root, peer, place.required, place.optional)
    limit = memlock.raise_limit(peer, request.memlock_bytes) if request.memlock_bytes else 0
    return Answer(limit, nodes)


class Door:
    """One unit's socket and the thread that opens it; at most AT_ONCE are attended to at a time, the rest wait in the kernel."""

    def __init__(self, place: Place, attend: Attend, hold: Callable[[socket.socket], Peer]) -> None:
        """Bind the socket in the unit's folder, in place of an earlier one, and begin to accept."""
        self.place = place
        self._attend = attend
        self._hold = hold
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._socket = _listen(Path(place.folder) / SOCKET)
        self._identity: Optional[Identity] = identity(Path(place.folder) / SOCKET)
        self._closing = False
        threading.Thread(target=self._accept, name=f"grant {place.resource} {place.unit}", daemon=True).start()

    @property
    def in_place(self) -> bool:
        """Return whether the socket in the folder is still ours."""
        return self._identity is not None and identity(Path(self.place.folder) / SOCKET) == self._identity

    def close(self) -> None:
        """Stop accepting; the folder stays, since a container may hold it."""
        self._closing = True
        # shutdown, not close alone, wakes a thread that waits in accept
        _quietly(lambda: self._socket.shutdown(socket.SHUT_RDWR))
        self._socket.close()
        if self.in_place:
            (Path(self.place.folder) / SOCKET).unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing:
            self._slots.acquire()
            try:
                connection, _address = self._socket.accept()
            except OSError:
                self._slots.release()
                # out of descriptors, or closed: never spin
                time.sleep(REST_SECONDS)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="grant", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                answer = self._answer(connection)
                connection.settimeout(LINE_SECONDS)
                _quietly(lambda: connection.sendall(encode_answer(answer)))
        finally:
            # who asks without end gets AT_ONCE answers per rest, and nobody else's share
            time.sleep(REST_SECONDS)
            self._slots.release()

    def _refused(self, fault: Fault, who: str) -> Fault:
        log.warning("%s %s: grant refused to %s: %s", self.place.resource, self.place.unit, who, fault.text())
        return fault

    def _answer(self, connection: socket.socket) -> Answer | Fault:
        who = "an unknown peer"
        try:
            peer = self._hold(connection)
            try:
                who = peer.label
                request = decode_request(read_line(connection, who))
                answer = self._attend(peer, request)
            finally:
                peer.close()
        except Fault as refused:
            return self._refused(refused, who)
        except OSError as error:
            return self._refused(Fault(what="attend to a launcher", subject=who, cause=str(error)), who)
        log.info(
            "%s %s: granted to %s: memlock %d, %s", self.place.resource, self.place.unit, who, answer.memlock_bytes, " ".join(answer.nodes)
        )
        return answer


class GrantServer:
    """All units' doors. A door stays for a unit that is no longer offered: a container may still hold it and start again."""

    def __init__(self, root: Root, grants: str) -> None:
        """Serve nothing yet. grants: the folder of all units' folders."""
        self._root = root
        self._grants = grants
        self._doors: dict[str, Door] = {}

    def serve(self, offers: Sequence[Offer]) -> list[Offer]:
        """Make every unit's folder and socket that is not there; return the offers, those without a folder as unhealthy."""
        served = []
        for offer in offers:
            place = place_of(offer, self._grants)
            try:
                self._keep(place)
            except Fault as fault:
                log.warning("%s %s: %s", place.resource, place.unit, fault.text())
                served.append(replace(offer, missing=(*offer.missing, place.folder)))
            else:
                served.append(offer)
        return served

    def _keep(self, place: Place) -> None:
        door = self._doors.get(place.folder)
        if door is not None and door.place == place and door.in_place:
            return
        if door is not None:
            self._doors.pop(place.folder).close()
        self._make_folder(Path(place.folder))
        self._doors[place.folder] = self._open(place)

    def stop(self) -> None:
        """Close every door; the folders stay."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    def _open(self, place: Place) -> Door:
        def asked(peer: Peer, request: Request) -> Answer:
            return attend(self._root, peer, request, place, self._folders())

        door = Door(place, asked, lambda connection: hold(self._root, connection))
        self._label(Path(place.folder) / SOCKET)
        return door

    def _folders(self) -> set[tuple[str, int]]:
        known = [(folder, identity(Path(folder))) for folder in list(self._doors)]
        return {(folder, one[0]) for folder, one in known if one is not None}

    def _make_folder(self, folder: Path) -> None:
        try:
            # root's alone above the resource: no other user of the host may reach a socket
            for place, mode in ((folder.parent.parent, 0o700), (folder.parent, 0o755), (folder, 0o755)):
                place.mkdir(parents=True, exist_ok=True)
                place.chmod(mode)
            self._label(folder)
        except OSError as error:
            raise Fault(what="make a grant folder", subject=str(folder), cause=f"{error.strerror} (errno {error.errno})") from error

    def _label(self, path: Path) -> None:
        """Let container domains reach the path where SELinux is on (its policy, container.te)."""
        if read_text(self._root.sysfs("fs", "selinux", "enforce")) is None:
            return
        try:
            os.setxattr(path, "security.selinux", _LABEL, follow_symlinks=False)
        except OSError as error:
            log.warning("cannot label %s as %s: %s", path, _LABEL.decode(), error)


def read_line(connection: socket.socket, who: str) -> bytes:
    """Return one line; Timeout when it is not whole within LINE_SECONDS in all, Refused when it is longer than a request is."""
    until = time.monotonic() + LINE_SECONDS
    data = b""
    while b"\n" not in data:
        left = until - time.monotonic()
        try:
            connection.settimeout(max(left, 0.001))
            part = connection.recv(LONGEST_REQUEST)
        except socket.timeout as late:
            raise Timeout(what="read a launcher's request", subject=who, cause=f"no whole line within {LINE_SECONDS:.0f} s") from late
        data += part
        if not part or left <= 0:
            raise Refused(what="read a launcher's request", subject=who, cause="the line has no end")
        if len(data) > LONGEST_REQUEST:
            raise Refused(what="read a launcher's request", subject=who, cause=f"longer than {LONGEST_REQUEST} bytes")
    return data.partition(b"\n")[0]


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
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


def _quietly(act: Callable[[], object]) -> None:
    try:
        act()
    except OSError as error:
        log.debug("the peer has gone: %s", error)

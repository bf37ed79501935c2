"""The grant sockets: one folder and socket per unit, at which a launcher asks for its nodes and its memory-lock limit.

Holding the mount of the folder is holding the unit, so nobody is looked up; what the peer itself is, is checked.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Optional, Union

from ..device.faults import Absent, Fault, Refused
from ..device.grant import Answer, Request, decode_request, encode_answer
from ..root import Root
from . import memlock, ownership
from .doors import Door
from .mounts import granted
from .peer import Peer, hold, refuse_host
from .porter import Porter

log = logging.getLogger(__name__)

LINES, LINES_SECONDS = 10, 60.0
GRANTED = "granted"
_WHAT = "grant a unit"
_SITE = "run `hostdev devices` on the node for the state of each device"
Known = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """What is granted at one folder: a unit, or all units of a resource that are one node.

    required, optional: nodes that the peer's container must and may have. vfio: whether a guest locks its memory for the
    unit. served: false for a unit that a container may hold although the node does not have it now.
    """

    resource: str
    unit: str
    folder: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    vfio: bool = False
    served: bool = True

    @property
    def label(self) -> str:
        """Return how messages name it."""
        return f"{self.resource} {self.unit}"


def attend(root: Root, peer: Peer, request: Request, place: Place, own: Known, folders: Collection[Known]) -> Answer:
    """Check the peer and do what it asks: all checks before the first change.

    own: the unit's folder and the device number of its file system. folders: the same of all VFIO units.
    """
    if not place.served:
        raise Absent(what=_WHAT, subject=place.label, cause="this node does not have it now", hint=_SITE)
    peer.must_live()
    refuse_host(root, peer)
    if not (peer.remembered or granted(peer.read("mountinfo"), [own])):
        # a number may have gone to another process between connecting and our first look: that one has no such mount
        raise Refused(what=_WHAT, subject=peer.label, cause=f"{place.folder} is not among its mounts")
    if request.memlock_bytes:
        memlock.check_bound(root, peer, request.memlock_bytes, folders)
    with ownership.opened_nodes(root, peer, place.required, place.optional, vfio=place.vfio) as nodes:
        # the limit first: it is what a system may refuse
        limit = memlock.raise_limit(peer, request.memlock_bytes) if request.memlock_bytes else 0
        return Answer(limit, nodes.give())


@dataclass(eq=False)
class _Desk:
    """One unit's side of its door: what is asked there is done, counted, written down and answered."""

    place: Place
    door: Door
    attend: Callable[[Peer, Request, Place, Known], Answer]
    counts: Counter[tuple[str, str]]
    _lines: deque[float] = field(default_factory=partial(deque, maxlen=LINES))
    _left_out: int = 0

    def reply(self, peer: Optional[Peer], said: Union[bytes, Fault]) -> bytes:
        """Return the line to answer; said: the visitor's line, or the fault that came instead."""
        who = peer.label if peer else "an unknown peer"
        try:
            answer = self._done(peer, said)
        except Fault as fault:
            return self._refused(who, fault)
        except OSError as error:
            return self._refused(who, Fault(what="attend to a launcher", subject=who, cause=str(error)))
        except Exception as error:
            log.exception("%s: attending to %s", self.place.label, who)
            return self._refused(who, Fault(what="attend to a launcher", subject=who, cause=f"an error of the service: {error!r}"))
        self.counts[self.place.resource, GRANTED] += 1
        self._write(logging.INFO, f"granted to {who}: memlock {answer.memlock_bytes}, {' '.join(answer.nodes)}")
        return encode_answer(answer)

    def _done(self, peer: Optional[Peer], said: Union[bytes, Fault]) -> Answer:
        if isinstance(said, Fault):
            raise said
        if peer is None:
            raise Absent(what=_WHAT, subject=self.place.label, cause="nobody asked for it")
        return self.attend(peer, decode_request(said), self.place, self.door.known_as)

    def _refused(self, who: str, fault: Fault) -> bytes:
        self.counts[self.place.resource, fault.as_dict()["kind"]] += 1
        self._write(logging.WARNING, f"grant refused to {who}: {fault.text()}")
        return encode_answer(fault)

    def _write(self, level: int, text: str) -> None:
        """Log some lines in a while and no more: who asks without end must not fill the node's disk."""
        now = time.monotonic()
        if len(self._lines) == LINES and now - self._lines[0] < LINES_SECONDS:
            self._left_out += 1
            return
        self._lines.append(now)
        more = f" (and {self._left_out} answers before that were not logged)" if self._left_out else ""
        self._left_out = 0
        log.log(level, "%s: %s%s", self.place.label, text, more)


class GrantServer:
    """All units' doors, and one thread that attends them.

    counts: answers since the start by resource and outcome: "granted", or the kind of the fault ("refused", "timeout" ...).
    """

    def __init__(self, root: Root) -> None:
        """Serve nothing yet."""
        self._root = root
        self._desks: dict[str, _Desk] = {}
        self._vfio: frozenset[Known] = frozenset()
        self._porter = Porter(partial(hold, root))
        self.counts: Counter[tuple[str, str]] = Counter()

    def serve(self, places: Iterable[Place], held: Optional[Iterable[Place]] = None) -> dict[str, str]:
        """Make every folder and socket that is not there; return, by folder, why one could not be made.

        held: units that containers hold (`held_places`), wherever they are now: a stored answer of Allocate mounts their
        folders again. A door stays while its unit is in either list, and for ever where nobody can say what is held.
        """
        wanted = {place.folder: place for place in places}
        for place in held or ():
            former = self._desks.get(place.folder)
            wanted.setdefault(place.folder, former.place if former else place)
        causes = {folder: cause for folder, place in wanted.items() if (cause := self._kept(place))}
        if held is not None:
            for folder in [one for one in self._desks if one not in wanted]:
                self._close(folder)
        self._porter.ring()
        self._vfio = frozenset(desk.door.known_as for desk in self._desks.values() if desk.place.vfio)
        return causes

    def stop(self) -> None:
        """End the thread and take the sockets out of their folders, which stay."""
        self._porter.stop()
        for desk in self._desks.values():
            desk.door.remove()
        self._desks.clear()

    def _kept(self, place: Place) -> str:
        """Return why the place cannot be served; empty when it is."""
        desk = self._desks.get(place.folder)
        if desk is not None and desk.door.in_place:
            desk.place = place
            return ""
        if desk is not None:
            self._close(place.folder)
        try:
            door = Door(self._root, place.folder)
        except Fault as fault:
            log.warning("%s: %s", place.label, fault.text())
            return fault.text()
        desk = self._desks[place.folder] = _Desk(place, door, self._attend, self.counts)
        self._porter.open(door, desk.reply)
        return ""

    def _close(self, folder: str) -> None:
        door = self._desks.pop(folder).door
        door.remove()
        self._porter.close(door)

    def _attend(self, peer: Peer, request: Request, place: Place, own: Known) -> Answer:
        return attend(self._root, peer, request, place, own, self._vfio)

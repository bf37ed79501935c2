"""One thread for all grant sockets: who comes is let in, heard to the end of one line, answered and let go.

Nobody waits for another container. Each may have a few unfinished lines at a door; one more, and its longest one is cut
short. After every visitor a door rests a moment, in which the other doors have their turn. So a crowd of one container
holds up neither other doors nor, at a door that containers share, the others there, and not even its own launcher.

The answer is made in the thread: it asks the kernel's own file systems and changes what a container has in memory, well
under a millisecond in all; a file system that a container serves by itself (FUSE) does not let us in, and so cannot keep
us waiting.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Callable, Optional, Union

from ..device.faults import Busy, Fault, Refused, Timeout
from ..device.grant import LONGEST_REQUEST
from .doors import Door
from .peer import Peer

log = logging.getLogger(__name__)

LINE_SECONDS = 3.0
REST_SECONDS = 0.002  # a crowd at one door gets some four hundred answers in a second, and a quarter of a core
PAUSE_SECONDS = 0.1
AT_ONCE = 8
AT_ONCE_IN_ALL = 64
_WHAT = "read a launcher's request"

Hold = Callable[[socket.socket], Peer]
Reply = Callable[[Optional[Peer], Union[bytes, Fault]], bytes]


@dataclass(eq=False)
class _Post:
    """A door that is attended, and what answers there."""

    door: Door
    reply: Reply


@dataclass(eq=False)
class _Visit:
    """One connection, heard until a moment of the monotonic clock."""

    post: _Post
    until: float
    connection: socket.socket
    peer: Peer
    said: bytes = b""

    def unread(self, cause: str) -> Refused:
        """Return the fault of a visitor whose line cannot be had."""
        return Refused(what=_WHAT, subject=self.peer.label, cause=cause)


class Porter:
    """Attends doors in a thread of its own, which begins with the first ring."""

    def __init__(self, hold: Hold) -> None:
        """Attend nothing yet. hold: tells who has connected; its fault is the visitor's answer."""
        self._hold = hold
        self._selector = selectors.DefaultSelector()
        self._orders: deque[Callable[[], None]] = deque()
        self._posts: dict[Door, _Post] = {}
        self._shut: dict[_Post, float] = {}
        self._visits: dict[_Visit, None] = {}  # the longest first
        self._thread: Optional[threading.Thread] = None
        self._ending = False
        self._bell, self._cord = socket.socketpair()
        for end in (self._bell, self._cord):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear_the_bell)

    def open(self, door: Door, reply: Reply) -> None:
        """Attend a door after the next ring. reply: told the process and its line, or the fault that came instead; returns the answer."""
        self._orders.append(partial(self._take, _Post(door, reply)))

    def close(self, door: Door) -> None:
        """Let nobody else in at a door after the next ring, and close its socket; who is in is answered."""
        self._orders.append(partial(self._leave, door))

    def ring(self) -> None:
        """Have the thread do what was ordered, if anything was."""
        if not self._orders:
            return
        try:
            self._cord.send(b"!")
        except BlockingIOError:
            log.debug("the bell rings already")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="grants", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, send the visitors away and close all sockets."""
        self._ending = True
        if self._thread is not None:
            self._orders.append(lambda: None)
            self.ring()
            self._thread.join()
        self._obey()
        for visit in list(self._visits):
            self._let_go(visit)
        for door in list(self._posts):
            self._leave(door)
        self._selector.close()
        self._bell.close()
        self._cord.close()

    def _hear_the_bell(self) -> None:
        self._bell.recv(4096)
        self._obey()

    def _obey(self) -> None:
        while self._orders:
            self._orders.popleft()()

    def _run(self) -> None:
        while not self._ending:
            for key, _mask in self._selector.select(self._patience()):
                self._do(key.data)
            self._do(self._look_at_the_clock)

    @staticmethod
    def _do(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:  # one visitor's trouble must not end the service of all others
            log.exception("attending the grant sockets")
            time.sleep(PAUSE_SECONDS)

    def _patience(self) -> Optional[float]:
        longest = next(iter(self._visits), None)
        due = [*([longest.until] if longest else []), *self._shut.values()]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for post in [one for one, until in self._shut.items() if until <= now]:
            del self._shut[post]
            self._listen(post)
        for visit in [one for one in self._visits if one.until <= now]:
            cause = f"no whole line within {LINE_SECONDS:g} s"
            self._answer(visit, Timeout(what=_WHAT, subject=visit.peer.label, cause=cause))

    def _take(self, post: _Post) -> None:
        self._posts[post.door] = post
        self._listen(post)

    def _listen(self, post: _Post) -> None:
        self._selector.register(post.door.socket, selectors.EVENT_READ, partial(self._admit, post))

    def _rest(self, post: _Post, seconds: float = REST_SECONDS) -> None:
        if post.door in self._posts and post not in self._shut:
            self._selector.unregister(post.door.socket)
            self._shut[post] = time.monotonic() + seconds

    def _leave(self, door: Door) -> None:
        post = self._posts.pop(door)
        if self._shut.pop(post, None) is None:
            self._selector.unregister(door.socket)
        door.socket.close()

    def _admit(self, post: _Post) -> None:
        if post.door not in self._posts or post in self._shut:
            return
        try:
            connection, _address = post.door.socket.accept()
        except OSError as error:
            # out of descriptors, or a visitor that has gone: never spin
            log.debug("nobody could be let in at %s: %s", post.door.folder, error)
            self._rest(post, PAUSE_SECONDS)
            return
        connection.setblocking(False)
        try:
            peer = self._hold(connection)
        except Fault as fault:
            with connection:
                _send(connection, post.reply(None, fault))
            self._rest(post)
        else:
            self._make_room(post, peer.cgroup)
            visit = _Visit(post, time.monotonic() + LINE_SECONDS, connection, peer)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, visit))
            self._visits[visit] = None

    def _make_room(self, post: _Post, container: str) -> None:
        mine = [visit for visit in self._visits if visit.post is post and visit.peer.cgroup == container]
        if len(mine) >= AT_ONCE or (mine and len(self._visits) >= AT_ONCE_IN_ALL):
            cause = "its line was not whole when others of its container came"
            self._answer(mine[0], Busy(what=_WHAT, subject=mine[0].peer.label, cause=cause, hint="ask again"))

    def _hear(self, visit: _Visit) -> None:
        if visit not in self._visits:
            return
        try:
            part = visit.connection.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError as error:
            self._answer(visit, visit.unread(str(error.strerror)))
            return
        visit.said += part
        line, end, _more = visit.said.partition(b"\n")
        if len(line) > LONGEST_REQUEST:
            self._answer(visit, visit.unread(f"longer than {LONGEST_REQUEST} bytes"))
        elif end:
            self._answer(visit, line)
        elif not part:
            self._answer(visit, visit.unread("the line has no end"))

    def _answer(self, visit: _Visit, said: Union[bytes, Fault]) -> None:
        _send(visit.connection, visit.post.reply(visit.peer, said))
        self._let_go(visit)
        self._rest(visit.post)

    def _let_go(self, visit: _Visit) -> None:
        del self._visits[visit]
        self._selector.unregister(visit.connection)
        visit.connection.close()
        visit.peer.close()


def _send(connection: socket.socket, line: bytes) -> None:
    try:
        # an answer fits into an empty socket's buffer whole: a visitor that does not read keeps nobody waiting
        connection.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError as error:
        log.debug("a visitor has gone: %s", error)

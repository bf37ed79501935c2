"""A unit's door under hostile peers: real child processes that speak badly, slowly, too much, or too often."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import Answer, Request, decode_answer, encode_request
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import grant, peer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import Door, GrantServer, Place
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.peer import Peer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until

CLIENT = """
import socket, sys, time
from pathlib import Path
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
made.sendall(bytes.fromhex(sys.argv[2]))
if sys.argv[3] == "end":
    made.shutdown(socket.SHUT_WR)
print(made.makefile("rb").readline().hex())
"""


class Desk:
    """A door whose attendant only remembers, or waits."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[int, Request]] = []
        self.busy = 0
        self.most = 0
        self.pause = threading.Event()
        self.pause.set()
        self._count = threading.Lock()
        self.door = Door(Place("example.com/gpu", "16", str(folder), (), ()), self.attend, lambda one: peer.hold(Root(), one))

    def attend(self, peer: Peer, request: Request) -> Answer:
        with self._count:
            self.busy += 1
            self.most = max(self.most, self.busy)
            self.asked.append((peer.pid, request))
        assert self.pause.wait(30)
        with self._count:
            self.busy -= 1
        return Answer(request.memlock_bytes, ("/dev/vfio/16",))

    @property
    def path(self) -> str:
        return f"{self.door.place.folder}/grant.sock"

    def child(self, line: bytes, after: str = "stay") -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", CLIENT, self.path, line.hex(), after], stdout=subprocess.PIPE, text=True)

    def ask(self, line: bytes, after: str = "stay") -> Answer:
        out, _err = self.child(line, after).communicate(timeout=30)
        return decode_answer(bytes.fromhex(out.strip()))


@pytest.fixture(name="desk")
def _desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.door.close()


def test_a_peer_is_known_by_its_process(desk: Desk) -> None:
    child = desk.child(encode_request(Request(5)))
    out, _err = child.communicate(timeout=30)
    assert decode_answer(bytes.fromhex(out.strip())) == Answer(5, ("/dev/vfio/16",))
    assert desk.asked == [(child.pid, Request(5))]


@pytest.mark.parametrize(
    ("line", "after", "says"),
    [
        (b"hello\n", "stay", "not one line of JSON"),
        (b"x" * 5000 + b"\n", "stay", "longer than"),
        (b'{"version":1', "end", "no end"),
        (b"", "end", "no end"),
    ],
)
def test_what_is_no_request_gets_a_fault(desk: Desk, line: bytes, after: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        desk.ask(line, after)
    assert desk.asked == []


def test_half_a_line_is_not_waited_for_and_hinders_nobody(desk: Desk) -> None:
    slow = desk.child(b'{"version":1,')
    assert desk.ask(encode_request(Request(0))).nodes
    out, _err = slow.communicate(timeout=30)
    with pytest.raises(Timeout, match="no whole line"):
        decode_answer(bytes.fromhex(out.strip()))


def test_a_flood_is_attended_to_few_at_a_time(desk: Desk) -> None:
    desk.pause.clear()
    peers = [socket.socket(socket.AF_UNIX) for dummy in range(12)]
    for one in peers:
        one.connect(desk.path)
        one.sendall(encode_request(Request(0)))
    until(lambda: desk.busy == grant.AT_ONCE, "all slots taken")
    desk.pause.set()
    for one in peers:
        one.settimeout(30)
        assert decode_answer(one.makefile("rb").readline()).nodes
        one.close()
    assert desk.most == grant.AT_ONCE


def test_a_peer_that_has_ended_is_told_apart(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    code = "import socket,sys; made = socket.socket(socket.AF_UNIX); made.connect(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True)
    connection, _address = listener.accept()
    with pytest.raises(Fault, match="it has ended"):
        peer.hold(Root(), connection)
    connection.close()
    listener.close()


def test_a_held_peer_notices_the_end(tmp_path: Path) -> None:
    desk_end, child_end = socket.socketpair()
    held = peer.hold(Root(), desk_end)
    assert held.pid == os.getpid()
    held.must_live()
    held.close()
    desk_end.close()
    child_end.close()


def test_a_process_of_the_host_is_refused(tmp_path: Path) -> None:
    one, two = socket.socketpair()
    held = peer.hold(Root(), one)
    with pytest.raises(Refused, match="host's mount namespace"):
        peer.refuse_host(Root(), held)
    held.close()
    one.close()
    two.close()


def test_a_socket_is_everybodys_below_a_folder_that_is_nobodys(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("s") / "grant"  # a socket's path has 107 characters
    server = GrantServer(Root(), str(base))
    server.serve([])
    place = Place("example.com/gpu", "16", str(base / "EXAMPLE_COM_GPU" / "16"), (), ())
    server._make_folder(Path(place.folder))
    door = server._open(place)
    modes = [oct(Path(one).stat().st_mode & 0o777) for one in (base, place.folder, f"{place.folder}/grant.sock")]
    assert modes == ["0o700", "0o755", "0o666"]
    door.close()
    assert Path(place.folder).is_dir()

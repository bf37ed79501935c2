"""The one thread of all doors under hostile visitors: real processes that speak badly, slowly, too much, or too often."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy, Fault, Refused, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import Answer, decode_answer, encode_answer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import porter
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.doors import Door
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.peer import Peer, hold
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until

VISITOR = """
import socket, sys
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
try:
    made.sendall(bytes.fromhex(sys.argv[2]) * int(sys.argv[3]))
except OSError:
    pass
if sys.argv[4] == "end":
    made.shutdown(socket.SHUT_WR)
print(made.makefile("rb").readline().hex())
"""
# as many as the kernel takes: those that find the queue full go on to the next
CROWD = """
import socket, sys
kept = []
for number in range(int(sys.argv[2])):
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(False)
    try:
        made.connect(sys.argv[1])
        made.send(bytes.fromhex(sys.argv[3]))
    except OSError:
        pass
    kept.append(made)
print("here", flush=True)
sys.stdin.read()
"""
LINE = b"a request\n"


class House:
    """Doors with one porter; whoever asks is answered with the length of what it said. home: the container of who comes next."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.said: list[tuple[str, int, bytes]] = []
        self.faults: list[Fault] = []
        self.doors: dict[str, Door] = {}
        self.home = "0::/one"
        self.root = FakeHost(base / "host").root
        self.porter = porter.Porter(self.hold)

    def hold(self, connection: socket.socket) -> Peer:
        return replace(hold(Root(), connection), cgroup=self.home)

    def door(self, name: str) -> str:
        door = self.doors[name] = Door(self.root, str(self.base / "g/X" / name))

        def reply(peer: Peer | None, said: bytes | Fault) -> bytes:
            if isinstance(said, Fault):
                self.faults.append(said)
                return encode_answer(said)
            if said == b"break":
                raise ZeroDivisionError
            assert peer is not None
            self.said.append((name, peer.pid, said))
            return encode_answer(Answer(len(said), (name,)))

        self.porter.open(door, reply)
        self.porter.ring()
        return f"{door.folder}/grant.sock"


def visitor(path: str, line: bytes, times: int = 1, after: str = "stay") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", VISITOR, path, line.hex(), str(times), after], stdout=subprocess.PIPE, text=True)


def ask(path: str, line: bytes = LINE, times: int = 1, after: str = "stay") -> Answer:
    out, _err = visitor(path, line, times, after).communicate(timeout=60)
    return decode_answer(bytes.fromhex(out.strip()))


def connect(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    made.connect(path)
    return made


def heard(made: socket.socket) -> Answer:
    with made, made.makefile("rb") as file:
        return decode_answer(file.readline())


@pytest.fixture(name="house")
def _house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("h"))  # a socket's path has 107 characters
    yield house
    house.porter.stop()


def test_a_visitor_is_known_by_its_process(house: House) -> None:
    path = house.door("16")
    child = visitor(path, LINE)
    out, _err = child.communicate(timeout=60)
    assert decode_answer(bytes.fromhex(out.strip())) == Answer(9, ("16",))
    assert house.said == [("16", child.pid, b"a request")]


@pytest.mark.parametrize(
    ("line", "times", "after", "says"),
    [
        (b"x" * 5000 + b"\n", 1, "stay", "longer than 4096"),
        (b"x" * 1000, 5000, "stay", "longer than 4096"),
        (b"half", 1, "end", "no end"),
        (b"", 1, "end", "no end"),
    ],
)
def test_what_is_no_line_is_not_passed_on(house: House, line: bytes, times: int, after: str, says: str) -> None:
    path = house.door("16")
    with pytest.raises(Refused, match=says):
        ask(path, line, times, after)
    assert house.said == []
    assert ask(path).nodes


def test_a_line_may_come_in_pieces_and_with_more_behind_it(house: House) -> None:
    made = connect(house.door("16"))
    for part in (b"a ", b"req", b"uest\nand more\n"):
        made.send(part)
    assert heard(made) == Answer(9, ("16",))
    assert [said for _name, _pid, said in house.said] == [b"a request"]


def test_half_a_line_is_not_waited_for_and_hinders_nobody(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter, "LINE_SECONDS", 1.0)
    path, other = house.door("16"), house.door("17")
    slow = [connect(path) for dummy in range(porter.AT_ONCE)]
    for one in slow:
        one.send(b"half")
    assert ask(other).nodes == ("17",)
    for one in slow:
        with pytest.raises(Timeout, match="no whole line within 1 s"):
            heard(one)
    assert ask(path).nodes == ("16",)


def test_a_visitor_that_never_reads_is_not_waited_for(house: House) -> None:
    path = house.door("16")
    deaf = [connect(path) for dummy in range(porter.AT_ONCE)]
    for one in deaf:
        one.send(LINE)
    assert ask(path).nodes == ("16",)
    until(lambda: len(house.said) + len(house.faults) == len(deaf) + 1, "answers for all")
    for one in deaf:
        one.close()


def crowd(path: str, line: bytes, size: int = 250) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", CROWD, path, str(size), line.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "here\n"
    return made


@pytest.mark.parametrize("line", [b"half", b"", LINE])
def test_a_thousand_visitors_of_one_container_keep_nobody_waiting(house: House, line: bytes) -> None:
    path, other = house.door("16"), house.door("17")
    crowds = [crowd(path, line) for dummy in range(4)]
    for dummy in range(5):
        assert ask(other).nodes == ("17",)
        assert ask(path).nodes == ("16",)
    assert len(house.porter._visits) <= porter.AT_ONCE + 1
    for one in crowds:
        one.communicate(timeout=60)
    assert ask(path).nodes == ("16",)


def test_the_oldest_half_line_of_a_container_makes_room(house: House) -> None:
    path = house.door("16")
    inside = []
    for number in range(porter.AT_ONCE):
        inside.append(connect(path))
        until(lambda number=number: len(house.porter._visits) == number + 1, "one more inside")  # type: ignore[misc]
    assert ask(path).nodes == ("16",)
    with pytest.raises(Busy, match="others of its container came"):
        heard(inside.pop(0))
    inside[0].send(LINE)
    assert heard(inside.pop(0)).nodes == ("16",)
    for one in inside:
        one.close()


def test_half_lines_of_one_container_at_a_shared_door_are_no_others_loss(house: House) -> None:
    path = house.door("all")
    stranger = connect(path)
    until(lambda: len(house.porter._visits) == 1, "the stranger inside")
    house.home = "0::/two"
    crowds = [crowd(path, b"half") for dummy in range(2)]
    until(lambda: any(isinstance(fault, Busy) for fault in house.faults), "somebody sent away")
    stranger.send(LINE)
    assert heard(stranger).nodes == ("all",)
    for one in crowds:
        one.communicate(timeout=60)


def test_crowds_at_many_doors_leave_each_other_door_its_first_visitor(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter, "LINE_SECONDS", 60.0)
    monkeypatch.setattr(porter, "AT_ONCE_IN_ALL", 12)
    crowded = [house.door(f"{number}") for number in range(3)]
    inside = [connect(path) for path in crowded for dummy in range(porter.AT_ONCE)]
    until(lambda: len(house.porter._visits) >= 12, "the crowd inside")
    quiet = house.door("quiet")
    for dummy in range(3):
        assert ask(quiet).nodes == ("quiet",)
    assert len(house.porter._visits) <= 12 + len(house.doors)
    for path in crowded:
        assert ask(path).nodes
    for one in inside:
        one.close()


def test_an_error_of_ours_costs_one_visitor_its_answer_and_nobody_else(house: House, caplog: pytest.LogCaptureFixture) -> None:
    path = house.door("16")
    made = connect(path)
    made.send(b"break\n")
    until(lambda: "ZeroDivisionError" in caplog.text, "the error in the log")
    assert ask(path).nodes == ("16",)
    made.close()


def test_without_descriptors_visitors_wait_until_there_are_some(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    path = house.door("16")
    refusals: list[str] = []
    real = socket.socket.accept

    def accept(listener: socket.socket) -> Any:
        if len(refusals) < 3:
            refusals.append("no")
            raise OSError(24, "Too many open files")
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert ask(path).nodes == ("16",)
    assert len(refusals) == 3


def test_a_visitor_that_has_ended_gets_nothing(house: House) -> None:
    code = "import socket,sys; made = socket.socket(socket.AF_UNIX); made.connect(sys.argv[1]); made.send(b'a request\\n')"
    path = house.door("16")
    # the thread hears of the door only after the visitor has ended
    gate = threading.Event()

    def wait() -> None:
        gate.wait(60)

    house.porter._orders.append(wait)
    house.porter.ring()
    subprocess.run([sys.executable, "-c", code, path], check=True)
    gate.set()
    until(lambda: any(isinstance(fault, Absent) and "has ended" in fault.cause for fault in house.faults), "the fault")
    assert house.said == []


def test_a_closed_door_lets_nobody_in_and_the_others_stay_open(house: House) -> None:
    path, other = house.door("16"), house.door("17")
    assert ask(path).nodes
    house.porter.close(house.doors["16"])
    house.porter.ring()
    assert ask(other).nodes == ("17",)
    with pytest.raises(OSError, match="refused"):
        connect(path)


@pytest.fixture(name="many_files")
def _many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
def test_one_thread_attends_256_doors(house: House) -> None:
    before = threading.active_count()
    paths = [house.door(str(number)) for number in range(256)]
    assert threading.active_count() == before + 1
    made = [connect(path) for path in paths]
    for one in made:
        one.send(LINE)
    assert [heard(one).nodes for one in made] == [(str(number),) for number in range(256)]
    assert threading.active_count() == before + 1


def test_the_end_closes_everything(house: House) -> None:
    files = len(os.listdir("/proc/self/fd"))
    second = House(house.base / "second")
    made = [connect(second.door(str(number))) for number in range(3)]
    until(lambda: len(second.porter._visits) == 3, "three visitors")
    second.porter.stop()
    for one in made:
        assert one.recv(10) == b""
        one.close()
    assert len(os.listdir("/proc/self/fd")) == files

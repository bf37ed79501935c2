"""The grant socket with hostile containers: each gets a fault and nothing else, the host stays as it is, the server lives."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import peer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import Place
from ansible_collections.vfio.passthrough.tests.cluster.yard import ASK, ENTER, Jail, Yard, made_yard, make, owner, request
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until

# connects, leaves the connection to a child, and ends before anything is asked
LEAVE = (
    ENTER
    + """
made = connect()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    pass
try:
    made.sendall(bytes.fromhex(told["lines"][0]))
except BrokenPipeError:
    pass
print(json.dumps(answer(made)))
"""
)
# asks, and ends without waiting for an answer
ASK_AND_END = ENTER + 'made = connect()\nmade.sendall(bytes.fromhex(told["lines"][0]))\n'
STAY = ENTER + 'print("here", flush=True)\nsys.stdin.read()\n'
CROWD = (
    ENTER
    + """
kept = []
for number in range(1000):
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(False)
    try:
        made.connect(told["folder"] + "/grant.sock")
        made.send(bytes.fromhex(told["lines"][0]))
    except OSError:
        pass
    kept.append(made)
print("here", flush=True)
sys.stdin.read()
"""
)
# exchanges two names without end, and asks meanwhile
FLIP = (
    ENTER
    + """
libc = ctypes.CDLL(None)
one, two = (name.encode() for name in told["names"])
flipper = os.fork()
while not flipper:
    libc.renameat2(-100, one, -100, two, 2)
kinds = []
for number in range(150):
    made = connect()
    made.sendall(bytes.fromhex(told["lines"][0]))
    kinds.append(answer(made).get("fault", {}).get("kind", "granted"))
os.kill(flipper, 9)
print(json.dumps(kinds))
"""
)


@pytest.fixture(name="yard")
def _yard() -> Iterator[Yard]:
    with made_yard() as yard:
        yield yard


def test_a_link_is_not_followed(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    victim = jail.top / "dev/null"
    make(victim, 3)
    (jail.top / "dev/vfio").mkdir()
    (jail.top / "dev/vfio/16").symlink_to("/dev/null")
    assert "links are not followed" in jail.refused(yard.gpu)
    assert owner(victim) == (0, 0)


@pytest.mark.parametrize("target", ["/elsewhere", "../elsewhere", "/proc/self/root/elsewhere"])
def test_a_linked_folder_is_not_followed(yard: Yard, target: str) -> None:
    jail = yard.jail(yard.gpu)
    make(jail.top / "elsewhere/16", 3)
    (jail.top / "dev").mkdir()
    (jail.top / "dev/vfio").symlink_to(target)
    assert "links are not followed" in jail.refused(yard.gpu)
    assert owner(jail.top / "elsewhere/16") == (0, 0)


@pytest.mark.parametrize("what", ["node", "folder"])
def test_what_changes_while_it_is_looked_at_gains_nothing(yard: Yard, what: str) -> None:
    jail = yard.jail(yard.gpu)
    own = jail.node("vfio/16")
    decoy = jail.top / ("dev/vfio/decoy" if what == "node" else "elsewhere/16")
    make(decoy, 5 if what == "node" else 3)
    if what == "folder":
        (jail.top / "dev/link").symlink_to("/elsewhere")
    inodes = {name: place.stat().st_ino for name, place in (("own", own), ("decoy", decoy))}
    for folder in (jail.top / "dev", jail.top / "dev/vfio"):
        os.chown(folder, 107, 107)
    names = ["/dev/vfio/16", "/dev/vfio/decoy"] if what == "node" else ["/dev/vfio", "/dev/link"]
    out, _err = jail.start(yard.gpu.folder, FLIP, lines=[request().hex()], names=names).communicate(timeout=120)
    assert set(json.loads(out)) == {"granted", "refused"}
    found = {place.stat().st_ino: owner(place) for place in jail.top.rglob("*") if place.is_char_device()}
    assert found[inodes["own"]] == (107, 107)
    assert found[inodes["decoy"]] == (0, 0)


@pytest.mark.parametrize(("path", "minor"), [("vfio/16", 5), ("vfio/devices/vfio0", 3), ("iommu", 3), ("vfio/vfio", 3)])
def test_another_device_under_a_nodes_name_is_refused_and_nothing_is_changed(yard: Yard, path: str, minor: int) -> None:
    jail = yard.jail(yard.gpu)
    wrong = jail.node(path, minor)
    nodes = [wrong] if path == "vfio/16" else [wrong, jail.node("vfio/16")]
    assert f"it is device 1:{minor}, the host's node is 1:" in jail.refused(yard.gpu)
    assert [owner(node) for node in nodes] == [(0, 0)] * len(nodes)


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFDIR])
def test_what_is_no_character_device_is_refused(yard: Yard, kind: int) -> None:
    jail = yard.jail(yard.gpu)
    place = jail.top / "dev/vfio/16"
    place.parent.mkdir(parents=True)
    if kind == stat.S_IFDIR:
        place.mkdir()
    else:
        os.mknod(place, 0o644 | kind, os.makedev(1, 3))
    before = place.stat()
    assert "it is no character device" in jail.refused(yard.gpu)
    assert (place.stat().st_uid, place.stat().st_mode) == (0, before.st_mode)


@pytest.mark.parametrize("users", [False, True])
def test_the_hosts_own_node_is_never_changed(yard: Yard, users: bool) -> None:
    # with users of its own a container has the host's nodes, as nobody can make one in there
    jail = yard.jail(yard.gpu, users=users)
    jail.mounts.append((str(yard.host.base / "dev/vfio/16"), "/dev/vfio/16"))
    assert "it is the host's own node" in jail.refused(yard.gpu)


def test_the_hosts_whole_dev_is_never_changed(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    jail.mounts.append((str(yard.host.base / "dev"), "/dev"))
    assert "it is the host's own node" in jail.refused(yard.gpu)


def test_a_container_without_the_node_is_told_so(yard: Yard) -> None:
    assert "no such node" in yard.jail(yard.gpu).refused(yard.gpu)


def test_a_socket_grants_its_own_units_nodes_only(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, yard.usb)
    node = jail.node("vfio/16")
    assert "/dev/bus/usb/001/004" in jail.refused(yard.usb)
    assert owner(node) == (0, 0)


def test_a_process_of_the_host_is_refused(yard: Yard) -> None:
    jail = yard.jail()
    (jail.top / yard.gpu.folder.lstrip("/")).mkdir(parents=True)
    jail.node("vfio/16")
    # the socket by another name, in the mount namespace of the host
    os.link(f"{yard.gpu.folder}/grant.sock", f"{jail.top}{yard.gpu.folder}/grant.sock")
    command = jail.command(yard.gpu.folder, ASK, lines=[request().hex()])
    done = subprocess.run(command[2:], capture_output=True, text=True, check=True, timeout=120)
    assert "it runs in the host's mount namespace" in done.stdout


def test_a_mount_table_without_end_is_not_read(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, clutter=2500)
    node = jail.node("vfio/16")
    assert "its mountinfo has more than 1048576 bytes" in jail.refused(yard.gpu, 1)
    assert owner(node) == (0, 0)


HOSTILE_LINES = {
    "nothing": b"\n",
    "garbage": bytes(range(256)).replace(b"\n", b"") + b"\n",
    "zeros": b"\0" * 4000 + b"\n",
    "oversize": b'{"version":1,"memlock_bytes":' + b"1" * 5000 + b"}\n",
    "huge number": b'{"version":1,"memlock_bytes":' + b"9" * 4000 + b"}\n",
    "infinity": b'{"version":1,"memlock_bytes":1e999}\n',
    "negative": b'{"version":1,"memlock_bytes":-1}\n',
    "deep lists": b'{"version":1,"memlock_bytes":' + b"[" * 2000 + b"]" * 2000 + b"}\n",
    "deep objects": b'{"version":1,"memlock_bytes":' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}\n",
    "a wish": b'{"version":1,"memlock_bytes":0,"nodes":["/dev/sda"]}\n',
    "a path as version": b'{"version":"../../../etc","memlock_bytes":0}\n',
    "a lone surrogate": b'{"version":1,"memlock_bytes":0,"\\ud800":1}\n',
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
}


def test_what_is_no_request_gets_a_fault_and_nothing_else(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, limits=(4096, 65536))
    node = jail.node("vfio/16")
    answers, limits = jail.say(yard.gpu, *HOSTILE_LINES.values())
    for name, answer in zip(HOSTILE_LINES, answers):
        assert set(answer) == {"fault"}, name
        assert answer["fault"]["kind"] == "refused", name
        assert len(json.dumps(answer)) < 1000, name
    assert limits == (4096, 65536)
    assert owner(node) == (0, 0)


@pytest.mark.parametrize("line", [b"half", b"", request()], ids=["half", "silent", "asking"])
def test_a_thousand_connections_of_one_container_keep_no_launcher_waiting(yard: Yard, line: bytes) -> None:
    hostile = yard.jail(yard.gpu)
    hostile.node("vfio/16")
    crowd = hostile.start(yard.gpu.folder, CROWD, lines=[line.hex()])
    assert crowd.stdout is not None
    assert crowd.stdout.readline() == "here\n"
    other = yard.jail(yard.usb)
    node = other.node("bus/usb/001/004")
    assert other.ask(yard.usb)[0]["nodes"] == ["/dev/bus/usb/001/004"]
    assert owner(node) == (107, 107)
    crowd.communicate(timeout=120)


@pytest.fixture(name="kernel", params=["remembers", "forgets"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Be this kernel, or one before 6.5, which does not remember who connected."""
    if request.param == "forgets":
        monkeypatch.setattr(peer, "_SO_PEERPIDFD", 0x7FFF0000)
    return str(request.param)


def test_who_passes_its_connection_on_and_ends_gets_nothing(yard: Yard, kernel: str) -> None:
    jail = yard.jail(yard.gpu)
    node = jail.node("vfio/16")
    out, _err = jail.start(yard.gpu.folder, LEAVE, lines=[request().hex()]).communicate(timeout=120)
    assert "it has ended" in json.loads(out)["fault"]["cause"], kernel
    assert owner(node) == (0, 0)


class Gate:
    """Keeps the server's thread from looking at anybody, until it is opened."""

    def __init__(self, yard: Yard) -> None:
        reader, self._writer = os.pipe()

        def wait() -> None:
            os.read(reader, 1)
            os.close(reader)

        yard.server._porter._orders.append(wait)
        yard.server._porter.ring()

    def open(self) -> None:
        os.close(self._writer)


def process_with_number(number: int, jail: Jail, place: Place) -> subprocess.Popen[str]:
    """Start a container's process that has a certain number; others take it now and then, so try again."""
    for dummy in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1), encoding="ascii")
        process = jail.start(place.folder, STAY)
        if process.pid == number:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            return process
        process.communicate(timeout=120)
    raise AssertionError(f"no process got the number {number}")


def test_a_process_that_got_the_number_of_who_asked_gets_nothing(yard: Yard, kernel: str) -> None:
    hostile, victim = yard.jail(yard.gpu), yard.jail(yard.mdev, limits=(4096, 65536))
    node, other = victim.node("vfio/16"), victim.node("vfio/20")
    gate = Gate(yard)
    asking = hostile.start(yard.gpu.folder, ASK_AND_END, lines=[request(65536).hex()])
    asking.communicate(timeout=120)
    process = process_with_number(asking.pid, victim, yard.mdev)
    before = Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")
    refusals = sum(yard.server.counts.values())
    gate.open()
    until(lambda: sum(yard.server.counts.values()) > refusals, "an answer")
    assert ("example.com/gpu", "granted") not in yard.server.counts, kernel
    assert Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii") == before
    assert [owner(node), owner(other)] == [(0, 0)] * 2
    process.communicate(timeout=120)

"""Who is at the other end of a socket: processes that end, that pass their connection on, whose number another one gets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import peer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.peer import Peer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root

# connects, leaves the connection to a child, and ends; the child stays until its input ends
LEAVE = """
import os, socket, sys
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
if os.fork():
    os._exit(0)
sys.stdin.read()
"""
STAY = "import socket, sys; made = socket.socket(socket.AF_UNIX); made.connect(sys.argv[1]); sys.stdin.read()"
UNKNOWN_OPTION = 0x7FFF0000


@contextmanager
def connection(tmp_path: Path, code: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Return the accepted end of a connection, and the process that made it."""
    listener = socket.socket(socket.AF_UNIX)
    # relative to the folder: a test's folder may pass the 107 bytes of a socket's path
    here = os.open(tmp_path, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{here}/s")
    os.close(here)
    listener.listen()
    child = subprocess.Popen([sys.executable, "-c", code, "s"], stdin=subprocess.PIPE, cwd=tmp_path)
    made, _address = listener.accept()
    try:
        yield made, child
    finally:
        made.close()
        listener.close()
        child.communicate(timeout=60)


@pytest.fixture(name="old_kernel", params=[False, True], ids=["remembers", "forgets"])
def _old_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Be a kernel without SO_PEERPIDFD, or this one."""
    if request.param:
        monkeypatch.setattr(peer, "_SO_PEERPIDFD", UNKNOWN_OPTION)
    return bool(request.param)


def test_a_process_is_held(tmp_path: Path, old_kernel: bool) -> None:
    with connection(tmp_path, STAY) as (made, child):
        held = peer.hold(Root(), made)
        assert (held.pid, held.uid, held.gid) == (child.pid, os.getuid(), os.getgid())
        assert held.cgroup == Path(f"/proc/{child.pid}/cgroup").read_text(encoding="ascii")
        assert held.remembered or old_kernel
        child.communicate(timeout=60)
        with pytest.raises(Absent, match="it has ended"):
            held.must_live()
        with pytest.raises(ProcessLookupError):
            held.read("cgroup")
        held.close()


def test_who_passed_its_connection_on_and_ended_is_nobody(tmp_path: Path, old_kernel: bool) -> None:
    with connection(tmp_path, LEAVE) as (made, child):
        child.wait(60)
        with pytest.raises(Absent, match="it has ended"):
            peer.hold(Root(), made)


def test_no_descriptor_stays_of_who_cannot_be_held(tmp_path: Path, old_kernel: bool) -> None:
    with connection(tmp_path, LEAVE) as (made, child):
        child.wait(60)
        before = len(os.listdir("/proc/self/fd"))
        for dummy in range(20):
            with pytest.raises(Absent):
                peer.hold(Root(), made)
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("told", [{"uid": 4711}, {"gid": 4711}])
def test_a_number_that_went_to_another_users_process_is_told_apart(tmp_path: Path, told: dict[str, int]) -> None:
    with connection(tmp_path, STAY) as (made, child):
        held = peer.hold(Root(), made)
        peer._must_be(Root(), held, peer._start_time(Root(), child.pid))
        with pytest.raises(Absent, match="its number went to another process"):
            peer._must_be(Root(), replace(held, **told), peer._start_time(Root(), child.pid))  # type: ignore[arg-type]
        with pytest.raises(Absent, match="its number went to another process"):
            peer._must_be(Root(), held, "1")
        held.close()


def test_a_processs_name_tells_nothing_of_its_user(tmp_path: Path) -> None:
    code = f"open('/proc/self/comm', 'w').write('\\vUid: 1 4711 1'); {STAY}"
    with connection(tmp_path, code) as (made, child):
        held = peer.hold(Root(), made)
        peer._must_be(Root(), held, peer._start_time(Root(), child.pid))
        held.close()


def test_a_process_of_the_host_is_refused() -> None:
    one, two = socket.socketpair()
    held = peer.hold(Root(), one)
    with pytest.raises(Refused, match="host's mount namespace"):
        peer.refuse_host(Root(), held)
    held.close()
    one.close()
    two.close()


def test_a_file_that_has_no_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("x" * (2 << 20), encoding="ascii")
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(Refused, match="its mountinfo has more than 1048576 bytes"):
        Peer(1, 0, 0, -1, folder).read("mountinfo")
    os.close(folder)

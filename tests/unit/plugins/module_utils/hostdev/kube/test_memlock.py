"""The bound of the memory lock, over made cgroup trees, and raising it on real processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import memlock
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.peer import Peer
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GIB = 1 << 30


def test_the_bound_is_memory_for_each_unit_and_a_gibibyte() -> None:
    assert memlock.bound(8 * GIB, 2) == 17 * GIB
    assert memlock.bound(8 * GIB, 0) == GIB


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB").mkdir(parents=True)
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-1048576kB").mkdir()
    return host


def test_version_2_takes_the_lowest_limit_on_the_way_up(host: FakeHost) -> None:
    host.write("/sys/fs/cgroup/pod/box/memory.max", "max\n")
    host.write("/sys/fs/cgroup/pod/memory.max", f"{2 * GIB}\n")
    host.write("/sys/fs/cgroup/memory.max", f"{9 * GIB}\n")
    assert memlock.memory_of(host.root, "0::/pod/box\n") == 2 * GIB


def test_huge_pages_are_added(host: FakeHost) -> None:
    host.write("/sys/fs/cgroup/pod/memory.max", f"{GIB}\n")
    host.write("/sys/fs/cgroup/pod/hugetlb.2MB.max", "0\n")
    host.write("/sys/fs/cgroup/pod/hugetlb.1GB.max", f"{4 * GIB}\n")
    assert memlock.memory_of(host.root, "0::/pod\n") == 5 * GIB


def test_version_1_has_a_tree_for_each_controller(host: FakeHost) -> None:
    host.write("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", f"{3 * GIB}\n")
    host.write("/sys/fs/cgroup/hugetlb/pod/hugetlb.1GB.limit_in_bytes", f"{GIB}\n")
    assert memlock.memory_of(host.root, "5:cpu,cpuacct:/other\n4:memory:/pod\n3:hugetlb:/pod\n0::/\n") == 4 * GIB


@pytest.mark.parametrize("text", ["0::/pod\n", "0::/../../elsewhere\n", "0::/..\n", "4:memory:/none\n", "", "0::/\n"])
def test_without_a_limit_the_machines_memory_counts(host: FakeHost, text: str) -> None:
    host.write("/sys/fs/cgroup/elsewhere/memory.max", "4096\n")
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    assert memlock.memory_of(host.root, text) == 16 * GIB


@pytest.mark.parametrize("end", ["\v", "\f", "\r", "\x1c", "\x85", "\u2028"])
def test_a_cgroups_name_is_no_further_line(host: FakeHost, end: str) -> None:
    host.write("/sys/fs/cgroup/pod/memory.max", f"{GIB}\n")
    assert memlock.memory_of(host.root, f"0::/pod/{end}0::/elsewhere\n") == GIB


def test_a_limit_beyond_the_machine_counts_as_the_machine(host: FakeHost) -> None:
    host.write("/sys/fs/cgroup/pod/memory.max", f"{64 * GIB}\n")
    assert memlock.memory_of(host.root, "0::/pod\n") == 16 * GIB


@pytest.fixture(name="child")
def _child() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose soft limit is below its hard one, both below what this process has."""
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 65536)); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.communicate(timeout=60)


@contextmanager
def held(pid: int, uid: int = 0) -> Iterator[Peer]:
    peer = Peer(pid, uid, 0, os.pidfd_open(pid), os.open(f"/proc/{pid}", os.O_RDONLY))
    yield peer
    peer.close()


def limits(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    return resource.prlimit(child.pid, resource.RLIMIT_MEMLOCK)


@pytest.mark.parametrize(("wanted", "holds"), [(65536, 65536), (8192, 65536), (1, 65536)])
def test_the_limit_is_raised_soft_like_hard_and_never_lowered(child: subprocess.Popen[bytes], wanted: int, holds: int) -> None:
    with held(child.pid) as peer:
        assert memlock.limits(peer) == (4096, 65536)
        assert memlock.raise_limit(peer, wanted) == holds
        assert limits(child) == (holds, holds)
        assert memlock.raise_limit(peer, 1) == holds


def test_what_the_system_refuses_is_told_with_the_hard_limit(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "prlimit", refuse)
    with held(child.pid) as peer, pytest.raises(Fault, match="Operation not permitted; its hard limit is 65536 bytes. the service needs"):
        memlock.raise_limit(peer, 1 << 20)


def test_a_process_that_ends_meanwhile_leaves_no_limit_to_who_gets_its_number(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = iter([True, False])

    def must_live(_peer: Peer) -> None:
        if not next(lives):
            raise Absent(what="w", subject="s", cause="it has ended")

    monkeypatch.setattr(Peer, "must_live", must_live)
    with held(child.pid) as peer, pytest.raises(Absent):
        memlock.raise_limit(peer, 65536)
    assert limits(child) == (4096, 65536)


def test_a_limit_that_is_not_ours_is_not_taken_back(child: subprocess.Popen[bytes]) -> None:
    memlock.take_back(child.pid, 1 << 30, (1, 1))
    assert limits(child) == (4096, 65536)
    child.communicate(timeout=60)
    memlock.take_back(child.pid, 65536, (1, 1))

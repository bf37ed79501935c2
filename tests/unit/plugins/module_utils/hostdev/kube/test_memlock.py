"""The bound of the memory lock, over made cgroup trees and mount tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import memlock
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GIB = 1 << 30
ONE, TWO = "/run/vfio-passthrough/grant/X/16", "/run/vfio-passthrough/grant/X/17"
FOLDERS = {(ONE, os.makedev(0, 25)), (TWO, os.makedev(0, 25))}


def line(root: str, point: str, device: str = "0:25") -> str:
    return f"900 800 {device} {root} {point} ro,nosuid - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("table", "units"),
    [
        ("", 0),
        (line("/vfio-passthrough/grant/X/16", ONE) + line("/vfio-passthrough/grant/X/17", TWO), 2),
        (line("/vfio-passthrough/grant/X/16", ONE) * 5, 1),  # the same one again
        (line("/vfio-passthrough/grant/X/16", TWO), 0),  # its own folder under another's name
        (line("/", ONE, "0:99"), 0),  # a file system of its own
        (line("/vfio-passthrough/grant/Y/16", ONE), 0),
        ("nonsense\n", 0),
        (line("/vfio-passthrough/grant/X/16", "/run/vfio\\055passthrough/grant/X/16"), 1),  # octal escapes
    ],
)
def test_only_mounts_of_our_folders_count(table: str, units: int) -> None:
    assert memlock.granted_units(table, FOLDERS) == units


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


@pytest.mark.parametrize("text", ["0::/pod\n", "0::/../../elsewhere\n", "4:memory:/none\n", "", "0::/\n"])
def test_without_a_limit_the_machines_memory_counts(host: FakeHost, text: str) -> None:
    host.write("/sys/fs/cgroup/elsewhere/memory.max", "4096\n")
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    assert memlock.memory_of(host.root, text) == 16 * GIB


def test_a_limit_beyond_the_machine_counts_as_the_machine(host: FakeHost) -> None:
    host.write("/sys/fs/cgroup/pod/memory.max", f"{64 * GIB}\n")
    assert memlock.memory_of(host.root, "0::/pod\n") == 16 * GIB

"""The hand-over of /dev/iommu: one descriptor for each start of a container, and nothing that stays behind."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.handover import handover_folder, handover_path
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import iommufd
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until

RESOURCE = "devices.kubevirt.io/iommufd"


class Stand:
    """A hand-over on a made host, whose /dev/iommu opens as long as `works`."""

    def __init__(self, base: Path) -> None:
        self.host = FakeHost(base)
        self.node = self.host.char("/dev/iommu")
        self.grants = f"{base}/grant"
        self.works = True
        self.opened: list[int] = []
        self.over = iommufd.HandOver(self.host.root, self.open)

    def open(self, root: Root) -> int:
        if not self.works:
            raise Refused(what="hand over", subject="/dev/iommu", cause="out of order")
        self.opened.append(os.open(root.at("/dev/iommu"), os.O_RDWR))
        return self.opened[-1]

    def path(self, *ids: str) -> Path:
        return Path(handover_path(RESOURCE, ids or ("iommufd0",), self.grants))

    def prepared(self, *ids: str) -> Path:
        path = self.path(*ids)
        self.over.prepare(str(path))
        return path


@pytest.fixture(name="stand")
def _stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    stand = Stand(tmp_path_factory.mktemp("i"))  # a socket's path has 107 characters
    yield stand
    stand.over.stop()


class Client:
    """What stands in a container: connects, takes the byte and the descriptor."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(str(path))

    def take(self) -> tuple[bytes, list[int]]:
        said, handles, _flags, _address = socket.recv_fds(self.socket, 16, 4)
        return said, handles

    def close(self) -> None:
        self.socket.close()


def is_null(handle: int) -> bool:
    """Return whether a descriptor is of what the made host has for /dev/iommu, and close it."""
    state = os.fstat(handle)
    os.close(handle)
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == os.stat("/dev/null").st_rdev


@pytest.mark.parametrize("polite", [True, False])
def test_one_byte_and_one_descriptor_and_the_file_is_gone(stand: Stand, polite: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = stand.prepared()
    client = Client(path)
    said, handles = client.take()
    assert (said, len(handles)) == (b"\0", 1)
    assert is_null(handles[0])
    assert not path.exists()
    if polite:
        client.socket.send(b"\0")
    else:
        client.socket.shutdown(socket.SHUT_WR)
    assert client.socket.recv(1) == b""  # it has closed its end
    client.close()
    assert ("did not say" in caplog.text) is not polite
    assert not path.exists()


def test_anybody_in_the_container_may_connect_and_nobody_else_on_the_host(stand: Stand) -> None:
    path = stand.prepared()
    modes = [oct(one.stat().st_mode & 0o777) for one in (path, path.parent, path.parent.parent)]
    assert modes == ["0o666", "0o755", "0o700"]
    assert str(path.parent.parent) == handover_folder(stand.grants)


def test_who_says_nothing_is_let_go_after_a_while(stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(iommufd, "BYTE_SECONDS", 0.05)
    client = Client(stand.prepared())
    _said, handles = client.take()
    assert client.socket.recv(1) == b""
    assert is_null(handles[0])
    client.close()
    until(lambda: "did not say" in caplog.text, "the warning")


def test_the_descriptor_is_opened_when_somebody_comes(stand: Stand) -> None:
    path = stand.prepared()
    assert len(stand.opened) == 1  # a try, for the refusal that a pod would get
    client = Client(path)
    assert is_null(client.take()[1][0])
    assert len(stand.opened) == 2
    client.close()


def test_a_socket_that_waits_is_kept_and_a_spent_one_made_again(stand: Stand) -> None:
    path = stand.prepared()
    first = path.stat().st_ino
    assert stand.prepared().stat().st_ino == first
    for _start in range(3):
        client = Client(path)
        assert is_null(client.take()[1][0])
        client.close()
        assert stand.prepared() == path
        assert path.is_socket()


def test_a_removed_file_is_made_again(stand: Stand) -> None:
    path = stand.prepared()
    path.unlink()
    client = Client(stand.prepared())
    assert is_null(client.take()[1][0])
    client.close()


def test_what_a_container_runtime_made_to_mount_is_replaced(stand: Stand) -> None:
    stand.path().mkdir(parents=True)
    assert stand.prepared().is_socket()


def test_what_stands_in_the_way_is_named(stand: Stand) -> None:
    (stand.path() / "other").mkdir(parents=True)
    with pytest.raises(Fault, match="iommufd0.sock: Directory not empty"):
        stand.prepared()


def test_without_a_descriptor_nothing_is_prepared(stand: Stand) -> None:
    stand.works = False
    with pytest.raises(Refused, match="/dev/iommu: out of order"):
        stand.prepared()
    assert not stand.path().exists()


def test_a_device_that_fails_later_costs_the_container_its_one_connection(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    path = stand.prepared()
    stand.works = False
    client = Client(path)
    assert client.take() == (b"", [])
    client.close()
    assert not path.exists()
    assert "nothing was handed over" in caplog.text


def test_one_that_only_connects_and_leaves_holds_up_nobody(stand: Stand) -> None:
    paths = [stand.prepared(f"iommufd{number}") for number in range(3)]
    Client(paths[0]).close()
    idle = Client(paths[1])
    client = Client(paths[2])
    assert is_null(client.take()[1][0])
    client.close()
    assert is_null(idle.take()[1][0])
    idle.close()


def test_of_too_many_that_wait_the_oldest_gives_way(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iommufd, "MOST", 3)
    paths = [stand.prepared(f"iommufd{number}") for number in range(5)]
    until(lambda: [path.exists() for path in paths] == [False, False, True, True, True], "the two oldest gone")


def test_a_service_that_starts_makes_what_containers_hold_and_clears_the_rest(stand: Stand) -> None:
    kept, left = stand.path("iommufd1"), stand.path("iommufd2")
    left.parent.mkdir(parents=True)
    for path in (kept, left):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    stand.over.restore(handover_folder(stand.grants), [str(kept)])
    assert not left.exists()
    client = Client(kept)
    assert is_null(client.take()[1][0])
    client.close()


def test_the_end_leaves_no_file_no_thread_and_no_descriptor(tmp_path_factory: pytest.TempPathFactory) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    stand = Stand(tmp_path_factory.mktemp("i"))
    paths = [stand.prepared(f"iommufd{number}") for number in range(4)]
    client = Client(paths[0])
    assert is_null(client.take()[1][0])
    stand.over.stop()
    client.close()
    assert not any(path.exists() for path in paths)
    assert not any(thread.name == "iommufd" and thread.is_alive() for thread in threading.enumerate())
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_one_that_was_never_needed_ends_as_well(stand: Stand) -> None:
    assert not handover_folder(stand.grants).startswith(stand.grants)
    assert not Path(handover_folder(stand.grants)).exists()


def test_the_units_are_told_in_no_order_and_resources_share_no_path(stand: Stand) -> None:
    assert stand.path("iommufd7", "iommufd12") == stand.path("iommufd12", "iommufd7")
    other = handover_path("example.com/iommufd", ["iommufd0"], stand.grants)
    assert other != str(stand.path("iommufd0"))


def test_a_node_that_cannot_be_opened_is_refused_by_its_name(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    with pytest.raises(Refused, match="/dev/iommu: it cannot be opened: No such file"):
        iommufd.open_iommu(host.root)
    before = sorted(os.listdir("/proc/self/fd"))
    host.char("/dev/iommu")
    with pytest.raises(Refused, match="/dev/iommu: its memory cannot be counted by process: Inappropriate ioctl"):
        iommufd.open_iommu(host.root)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_kernel_is_asked_as_its_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []

    def ioctl(_handle: int, request: int, given: bytes) -> int:
        asked.append((request, given))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    host = FakeHost(tmp_path)
    host.char("/dev/iommu")
    assert is_null(iommufd.open_iommu(host.root))
    # size 24; option rlimit mode 0; operation set 0; object 0; value 1
    assert asked == [(0x3B87, bytes.fromhex("18000000 00000000 0000 0000 00000000 0100000000000000".replace(" ", "")))]

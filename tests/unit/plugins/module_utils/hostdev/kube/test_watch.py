"""What wakes the service, and what tells its manager."""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import notify, plugin, watch
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.waking import DEVICE, FILE, Waker
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.watch import DeviceWatch, FolderWatch
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until


def woken(waker: Waker, seconds: float = 10.0) -> bool:
    found = bool(select.select([waker._read], [], [], seconds)[0])
    waker.wait(0, 0)
    return found


def test_what_is_set_while_nobody_waits_is_one_wake() -> None:
    waker = Waker()
    for dummy in range(70000):  # more than a pipe holds: setting never blocks
        waker.set()
    waker.wait(60, time.monotonic())
    assert not woken(waker, 0)


def test_names_that_come_and_go_wake(tmp_path: Path) -> None:
    folder = tmp_path / "vfio"
    folder.mkdir()
    waker = Waker()
    FolderWatch({folder: "*"}, waker)
    (folder / "16").touch()
    assert woken(waker)
    (folder / "16").unlink()
    assert woken(waker)


def test_a_parents_other_names_do_not_wake(tmp_path: Path) -> None:
    waker = Waker()
    FolderWatch({tmp_path / "vfio": "*"}, waker)
    (tmp_path / "tty7").touch()
    (tmp_path / "vfio").mkdir()
    assert woken(waker)
    (tmp_path / "tty7").unlink()
    assert not woken(waker, 0.5)


def test_of_a_folder_only_the_named_files_wake(tmp_path: Path) -> None:
    waker = Waker()
    FolderWatch({tmp_path: "*.sock"}, waker)
    (tmp_path / "kubelet_internal_checkpoint").touch()
    assert not woken(waker, 0.5)
    (tmp_path / "kubelet.sock").touch()
    assert woken(waker)


def test_a_node_wakes_wherever_it_is(tmp_path: Path) -> None:
    waker = Waker()
    watched = FolderWatch({tmp_path / "vfio": "*"}, waker)
    (tmp_path / "net").mkdir()
    watched.arm([tmp_path / "net/tun"])
    (tmp_path / "net/tap").touch()
    assert not woken(waker, 0.5)
    (tmp_path / "net/tun").touch()
    assert woken(waker)


def test_who_waits_is_told_what_woke_it() -> None:
    waker = Waker()
    waker.set()
    assert waker.wait(10, 0) == FILE
    waker.set(DEVICE)
    assert DEVICE in waker.wait(10, 0)
    assert waker.wait(0, 0) == b""


def test_a_folder_that_was_replaced_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "vfio"
    folder.mkdir()
    waker = Waker()
    watched = FolderWatch({folder: "*"}, waker)
    folder.rmdir()
    assert woken(waker)
    watched.arm()
    folder.mkdir()
    assert woken(waker)
    watched.arm()
    (folder / "16").touch()
    assert woken(waker)


def test_a_folder_that_was_replaced_at_once_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "vfio"
    waker = Waker()
    watched = FolderWatch({folder: "*"}, waker)

    def armed() -> bool:
        watched.arm()
        return watched._armed.get(folder) is not None

    for name in ("16", "17", "18"):
        folder.mkdir()
        until(armed, "watched")
        waker.wait(0, 0)
        (folder / name).touch()
        assert woken(waker)
        (folder / name).unlink()
        folder.rmdir()


def test_without_the_library_files_are_looked_at_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch, "inotify", None)
    assert FolderWatch({tmp_path: "*"}, Waker()).longest_wait <= 1
    assert "python3-inotify" in caplog.text


def test_without_pyudev_it_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(watch, "pyudev", None)
    DeviceWatch(Waker()).keep()
    assert "python3-pyudev" in caplog.text


def test_without_grpc_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "grpc", None)
    with pytest.raises(Unsupported, match="python3-grpcio"):
        plugin.require()


def test_the_manager_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        assert notify.notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_a_manager_that_wants_signs_of_life_gets_them_while_the_loop_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        assert notify.Pulse(tmp_path / "none").wait(Waker(), 0.3, 0) == b""
        assert [manager.recv(100) for dummy in range(3)] == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(("told", "of"), [("", ""), ("0", ""), ("soon", ""), ("100000", "1")])
def test_what_asks_for_no_signs_gets_none(monkeypatch: pytest.MonkeyPatch, told: str, of: str) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", told)
    monkeypatch.setenv("WATCHDOG_PID", of)
    assert notify.watchdog_seconds() == float("inf")


def test_without_a_manager_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify.notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        assert not notify.notify("READY=1")
    assert "READY=1" in caplog.text


def test_a_socket_that_would_be_too_long_is_named_by_a_hash() -> None:
    folder = Path("/var/lib/kubelet/device-plugins")
    assert plugin.socket_file(folder, "example.com/gpu") == "vfio-passthrough-example.com_gpu.sock"
    long = plugin.socket_file(folder, "example.com/" + "n" * 63)
    assert len(f"{folder}/.{long}") <= 107
    assert long != plugin.socket_file(folder, "example.com/" + "n" * 62)

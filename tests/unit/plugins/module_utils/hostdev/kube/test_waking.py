"""Sources of events that end, and what is heard of what happens then: by made sources, and by what the kernel does to real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable

import inotify.calls
import pytest
import pyudev
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import watch
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.filequeue import FileQueue
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.waking import DEVICE, FILE, Follower, Waker
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.watch import DeviceWatch, FolderWatch
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.udev import COLLECTIONS

# a device of every machine; its file lets root make the kernel tell of it
UEVENT = Path("/sys/class/mem/null/uevent")
ROOM = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
FAULTS = [OSError(105, "No buffer space available"), ValueError("odd"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), EOFError()]


class HeldWaker(Waker):
    """Keeps all that it is set with; whoever sets it waits for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[bytes] = []
        self.go = threading.Event()

    def set(self, kind: bytes = FILE) -> None:
        self.kinds.append(kind)
        self.go.wait()


class Source:
    """Hands out steps: each of its faults ends one of them, what comes after waits for ever."""

    def __init__(self, *faults: BaseException) -> None:
        self.opened = 0
        self._faults = list(faults)

    def begin(self) -> Callable[[], None]:
        self.opened += 1
        return self._step

    def _step(self) -> None:
        if self._faults:
            raise self._faults.pop(0)
        threading.Event().wait()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_whatever_ends_a_source_a_new_one_is_opened_and_both_wake(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    source, wakes = Source(fault), threading.Semaphore(0)
    Follower("odd", source.begin, wakes.release)
    assert wakes.acquire(timeout=30)
    assert wakes.acquire(timeout=30)
    assert source.opened == 2
    assert (str(fault) or "EOFError") in caplog.text


def test_a_source_that_cannot_be_opened_is_tried_again_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    source, wakes = Source(), threading.Semaphore(0)
    refusals = [OSError("not yet"), OSError("not yet")]

    def begin() -> Callable[[], None]:
        if refusals:
            raise refusals.pop()
        return source.begin()

    Follower("odd", begin, wakes.release)
    assert wakes.acquire(timeout=30)
    assert source.opened == 1
    assert caplog.text.count("not yet") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    source, wakes = Source(SystemExit()), threading.Semaphore(0)
    follower = Follower("odd", source.begin, wakes.release)

    def started_again() -> bool:
        follower.keep()
        return "had died" in caplog.text

    until(started_again, "another thread")
    assert wakes.acquire(timeout=30)
    assert source.opened == 2


def refused() -> Any:
    raise OSError(105, "No buffer space available")


def test_a_monitor_that_lost_events_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Monitor:
        """The least that is asked of one: the first loses events, the second waits."""

        filter_by = start = set_receive_buffer_size = staticmethod(lambda *_given: None)

        @classmethod
        def from_netlink(cls, _context: object, source: str) -> Any:
            made.append(source)
            return cls()

        def poll(self, timeout: None) -> object:
            return refused() if len(made) == 1 else threading.Event().wait(timeout)

    monkeypatch.setattr(pyudev, "Monitor", Monitor)
    waker = HeldWaker()
    waker.go.set()
    DeviceWatch(waker)
    until(lambda: waker.kinds == [DEVICE, DEVICE], "what was lost, and the new monitor")
    assert made == ["kernel", "kernel"]


@pytest.mark.parametrize("uevent", [UEVENT] if os.access(UEVENT, os.W_OK) else [])
def test_after_a_full_queue_of_the_kernel_devices_are_heard_again(
    uevent: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_SUBSYSTEMS", ("mem",))
    monkeypatch.setattr(watch, "_DEVICE_BUFFER", 2304)
    waker = HeldWaker()
    DeviceWatch(waker)
    uevent.write_text("change", encoding="ascii")
    until(lambda: waker.kinds, "the first event")
    for dummy in range(50):
        uevent.write_text("change", encoding="ascii")
    waker.go.set()
    until(lambda: len(waker.kinds) == 3, "what was lost, and the new monitor")
    assert "followed anew" in caplog.text
    uevent.write_text("change", encoding="ascii")
    until(lambda: len(waker.kinds) == 4, "an event of the new monitor")


def test_after_a_full_queue_of_file_events_files_are_heard_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waker = HeldWaker()
    watched = FolderWatch({tmp_path: "1*"}, waker)
    (tmp_path / "16").touch()
    until(lambda: waker.kinds, "the first event")
    for dummy in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii")) // 2 + 10):
        (tmp_path / "a").touch()
        (tmp_path / "a").unlink()
    (tmp_path / "17").touch()  # of this one there is no word
    waker.go.set()
    until(lambda: "queue was full" in caplog.text, "the full queue")
    until(lambda: watched.longest_wait == float("inf") and watched._armed, "the new queue")
    before = len(waker.kinds)
    (tmp_path / "18").touch()
    until(lambda: len(waker.kinds) > before, "an event of the new queue")


def test_a_name_that_is_no_utf8_is_a_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waker = HeldWaker()
    waker.go.set()
    FolderWatch({tmp_path: "*"}, waker)
    for name in (b"\xff\xfe", b"16"):
        before = len(waker.kinds)
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).touch()
        until(lambda: len(waker.kinds) > before, f"the event of {name!r}")  # noqa: B023
    assert "anew" not in caplog.text


@pytest.fixture(name="mended")
def _mended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse every watch until the list is no longer empty."""
    allowed: list[str] = []
    add = FileQueue.add

    def limited(queue: FileQueue, path: str, kinds: int) -> int:
        if not allowed:
            raise inotify.calls.InotifyError("no more watches")
        return add(queue, path, kinds)

    monkeypatch.setattr(FileQueue, "add", limited)
    return allowed


def test_folders_that_cannot_be_watched_are_looked_at_often(tmp_path: Path, mended: list[str], caplog: pytest.LogCaptureFixture) -> None:
    watched = FolderWatch({tmp_path: "*"}, Waker())
    watched.arm()
    assert watched.longest_wait <= 1
    assert caplog.text.count("no more watches") == len({tmp_path, tmp_path.parent})
    mended.append("all")
    watched.arm()
    assert watched.longest_wait == float("inf")


def unmounting(folder: Path) -> None:
    """In a mount namespace of its own: a watched file system goes, another one comes in its place."""
    waker = HeldWaker()
    waker.go.set()

    def told(what: str, act: Callable[[], object]) -> None:
        watched.arm()
        before = len(waker.kinds)
        act()
        until(lambda: len(waker.kinds) > before, what)

    mount = ["mount", "-t", "tmpfs", "none", str(folder)]
    subprocess.run(mount, check=True)
    watched = FolderWatch({folder: "*"}, waker)
    told("a name on the first", (folder / "16").touch)
    told("the unmounting", lambda: subprocess.run(["umount", str(folder)], check=True))
    told("a name below", (folder / "17").touch)
    subprocess.run(mount, check=True)
    told("a name on the second", (folder / "18").touch)


@pytest.mark.parametrize("room", [ROOM] if subprocess.run([*ROOM, "true"], check=False, capture_output=True).returncode == 0 else [])
def test_an_unmounted_folder_wakes_and_what_is_there_then_is_watched(room: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    command = [*room, sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    unmounting(Path(sys.argv[1]))

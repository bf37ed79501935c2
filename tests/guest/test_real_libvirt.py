"""The launcher with the real libvirt and QEMU, as in a container: first process, user 107, no right, default limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.fakes.pod import FAKES, LAUNCHER, MODULE_UTILS, Ended, Pod, vmi
from ansible_collections.vfio.passthrough.tests.guest.guest import HERE, PYTHON, USER, as_container, guest_elf


@dataclass
class RealPod(Pod):
    """A launcher over the real libvirt."""

    def boot(self, arguments: str, grace: int = 20, **changes: Any) -> None:
        """Start a guest with these kernel arguments."""
        document = vmi(arguments, {"disks": [{"name": "scratch", "disk": {"bus": "virtio"}}]}, grace)
        document["spec"]["volumes"] = [{"name": "scratch", "emptyDisk": {"capacity": "64Mi"}}]
        self.describe(document)
        options = self.options(**{"daemon": ["libvirtd"], **changes})
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, USER, USER)
        self.run([PYTHON, str(LAUNCHER), str(MODULE_UTILS), json.dumps(options)])

    def of(self, name: str) -> int:
        """Return the pid of a process of this launcher's by its program's name."""
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                command = (status.parent / "cmdline").read_bytes().split(b"\0")[0].decode()
                spaces = os.readlink(status.parent / "ns/pid")
            except OSError:
                continue
            if Path(command).name == name and spaces == os.readlink(f"/proc/{self.pid()}/ns/pid"):
                return int(status.parent.name)
        raise AssertionError(f"no {name} runs")


@pytest.fixture(name="pod")
def _pod() -> Iterator[RealPod]:
    # not below pytest's folder, which is root's alone; and short, for the sake of QEMU's monitor socket
    base = Path(tempfile.mkdtemp(prefix="launch-"))
    base.chmod(0o755)
    (base / "user").mkdir()
    folder = base / "w"
    (folder / "kernel-boot").mkdir(parents=True)
    shutil.copy(guest_elf(), folder / "kernel-boot" / "guest.elf")
    pod = RealPod(folder, as_container(base / "user"))
    try:
        yield pod
    finally:
        if pod.process is not None and pod.process.poll() is None:
            os.kill(pod.pid(), signal.SIGKILL)  # the first process of its namespace takes all others with it
            pod.process.wait()
        shutil.rmtree(base)


def _lines(ended: Ended) -> list[str]:
    return [line.rstrip() for line in ended.out.splitlines()]


def test_the_fake_is_like_the_real_one() -> None:
    done = subprocess.run([PYTHON, str(HERE / "compare_fake.py"), str(FAKES / "libvirt.py")], check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(done.stdout) == []


def test_a_guest_that_powers_off_ends_the_launcher_with_success(pod: RealPod) -> None:
    pod.boot("off")
    ended = pod.end()
    assert ended.message == {"state": "Succeeded", "reason": "GuestShutdown", "message": "the guest powered off"}, ended
    assert ended.code == 0
    assert _lines(ended)[0].startswith("GUEST-BEGIN ")
    assert _lines(ended)[-1] == "GUEST-OFF"
    assert re.search(r"own time \d+\.\d\d s", ended.log)
    assert (pod.folder / "disks/scratch.raw").stat().st_size == 64 << 20


def test_sigterm_lets_the_guest_power_off(pod: RealPod) -> None:
    pod.boot("button")
    pod.wait_ready()
    pod.send(signal.SIGTERM)
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (0, "GuestShutdown"), ended
    assert "GUEST-OFF" in _lines(ended)


def test_a_guest_that_is_deaf_is_destroyed_after_its_grace(pod: RealPod) -> None:
    pod.boot("stay", grace=1)
    pod.wait_ready()
    pod.send(signal.SIGTERM)
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (3, "GracePeriodExpired"), ended


def test_libvirtd_killed_under_a_guest_is_a_fault(pod: RealPod) -> None:
    pod.boot("stay")
    pod.wait_ready()
    os.kill(pod.of("libvirtd"), signal.SIGKILL)
    ended = pod.end()
    assert ended.code == 1, ended
    assert "libvirtd: it ended with signal 9" in ended.message["message"]


def test_qemu_killed_is_no_power_off(pod: RealPod) -> None:
    pod.boot("stay")
    pod.wait_ready()
    os.kill(pod.of("qemu-system-x86_64"), signal.SIGKILL)
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (2, "EmulatorFailed"), ended


def test_a_reboot_of_the_guest_is_not_its_end(pod: RealPod) -> None:
    pod.boot("again")
    ended = pod.end()
    assert ended.out.count("GUEST-BEGIN") == 2, ended
    assert ended.code == 0


def test_a_kernel_that_is_not_there_is_libvirts_to_name(pod: RealPod) -> None:
    (pod.folder / "kernel-boot/guest.elf").unlink()
    pod.boot("off")
    ended = pod.end()
    assert ended.code == 1, ended
    assert "cannot start the guest: default_probe: libvirt says:" in ended.message["message"]
    assert "guest.elf" in ended.message["message"]


def test_libvirts_knowledge_of_qemu_is_taken_from_a_warm_folder(pod: RealPod) -> None:
    pod.boot("off")
    assert pod.end().code == 0
    probed = next((pod.folder / "cache/libvirt/qemu/cache/capabilities").glob("*.xml"))
    warm = pod.folder / "capabilities"
    warm.mkdir()
    # as from an image whose files have other times here
    text = re.sub(r"<(qemuctime|selfctime)>\d+<", r"<\1>1<", probed.read_text(encoding="utf-8"))
    (warm / probed.name).write_text(text, encoding="utf-8")
    shutil.rmtree(pod.folder / "cache")
    pod.boot("off")
    assert pod.end().code == 0
    # libvirt writes what it probes with mode 0600: it has not probed
    assert probed.stat().st_mode & 0o777 == 0o644

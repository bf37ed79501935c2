"""The worker: an emulated Debian server with real kernel, IOMMU groups, GRUB and systemd, and GPUs of any ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Optional, Union

from ..harness.cache import Input, cached
from ..harness.say import step
from . import debian, firmware, qemu, slots
from .command import Files, Hardware, command
from .devices import Function, Servers, Slot, gpu
from .links import Qmp, Ssh, free_port, wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

NAME = "worker"


@dataclass(frozen=True)
class Preparation:
    """What to do once on a booted worker before it is saved: run(worker), keyed by name and inputs."""

    name: str
    run: Callable[[Worker], None]
    inputs: tuple[Input, ...] = ()


class Worker:
    """One running VM. Make it by Worker.start, use it as a context manager or call stop()."""

    def __init__(self, hardware: Hardware, workdir: Path, forwards: Mapping[int, int], slots: tuple[Slot, ...]) -> None:
        self.hardware, self.slots = hardware, list(slots)
        workdir.mkdir(parents=True, exist_ok=True)
        for old in workdir.glob("*.log"):
            old.unlink()
        self._sockets = Path(tempfile.mkdtemp(prefix="worker-"))
        self.port = free_port()
        self.files = Files(workdir, self._sockets, {self.port: 22, **forwards})
        self.key = hardware.image() / "id"
        self.servers = Servers(self._sockets, workdir)
        self.shell = Ssh(self.port, self.key, self._sockets)
        self._qmp: Optional[Qmp] = None
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._place: Optional[IO[str]] = None

    # -- life -------------------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        workdir: Path,
        *,
        boot: str = "direct",
        memory_mib: int = 4096,
        restore: Union[bool, Preparation] = False,
        extra_disks: tuple[Path, ...] = (),
        forwards: Optional[Mapping[int, int]] = None,
        gpus: int = 2,
        iommu: Union[bool, str] = True,
        default_arguments: str = "",
        preinstall: bool = True,
        direct_arguments: str = "",
    ) -> Worker:
        """Start a worker and return when ssh works.

        boot, memory_mib, iommu, extra_disks and the rest of Hardware: see there. forwards: TCP ports {here: there}
        besides ssh's. gpus: how many pairs of display and audio function, at 0000:01:00, 0000:02:00, ...
        restore: continue from a saved state (3 s instead of 20; boot must be "direct") - of a plain booted worker,
        or of one prepared further by the Preparation; either is made on first use. GPUs are plugged afterwards.
        """
        hardware = Hardware(boot, memory_mib, iommu, tuple(extra_disks), default_arguments, preinstall, direct_arguments)
        slots = tuple(gpu(number) for number in range(gpus))
        saved = prepared(hardware, PLAIN if restore is True else restore) if restore else None
        worker = cls(hardware, workdir, forwards or {}, () if saved else slots)
        try:
            worker._make_disk(saved)
            worker._launch(f"exec:cat {saved}/state" if saved else "")
            if saved:
                worker._resume()
                for slot in slots:
                    worker.plug(slot)
            else:
                worker.wait_ssh()
        except BaseException:
            worker.stop()
            raise
        return worker

    def __enter__(self) -> Self:
        """Return the worker itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def stop(self) -> None:
        """End QEMU and the device servers; logs stay in the work folder, the disk goes."""
        self.power_off_hard()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self.files.disk.unlink(missing_ok=True)

    def power_off_hard(self) -> None:
        """Pull the plug: what the worker had not written to its disk is lost. power_on() starts it again."""
        self.shell.forget()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        self.servers.stop()
        if self._place is not None:
            slots.give(self._place)
            self._place = None

    def power_on(self) -> None:
        """Boot again from the same disk, with the devices it had."""
        self._launch()
        self.wait_ssh()

    def _launch(self, incoming: str = "") -> None:
        self._place = self._place or slots.take()
        devices = []
        for slot in self.slots:
            self.servers.start(slot)
            devices += slot.devices(self._sockets)
        line = command(self.hardware, self.files, devices, incoming)
        if threading.current_thread() is threading.main_thread():
            # so that a killed test run leaves no VM behind; the kernel counts the starting thread as the parent
            line = ["setpriv", "--pdeathsig", "KILL", *line]
        self.files.qmp.unlink(missing_ok=True)
        with open(self.files.work / "qemu.log", "ab") as log:
            # a file, never a pipe: QEMU writes thousands of harmless lines about vfio-user mappings
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("QEMU's control socket", self._connected, self.running)
        if self.hardware.boot == "grub":
            process = self.process
            firmware.watch(self.files.serial, lambda: self.qmp("system_reset"), lambda: process.poll() is None)

    def _connected(self) -> bool:
        with contextlib.suppress(OSError):
            self._qmp = Qmp(self.files.qmp)
            return True
        return False

    def _make_disk(self, saved: Optional[Path]) -> None:
        below, form = (saved / "disk.qcow2", "qcow2") if saved else (self.hardware.image() / "disk.raw", "raw")
        debian.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", form, "-b", str(below), str(self.files.disk)])
        if self.hardware.boot == "grub":
            shutil.copy(qemu.firmware("OVMF_VARS_4M.fd"), self.files.work / "vars.fd")
            (self.files.work / "vars.fd").chmod(0o644)

    def _resume(self) -> None:
        wait_for("the saved state", lambda: self.qmp("query-status")["status"] != "inmigrate", self.running)
        self.qmp("cont")
        self.wait_ssh()
        self.ssh(f"date -s @{time.time():.0f}")  # it woke in the past

    def running(self) -> bool:
        """Tell whether QEMU still runs."""
        return self.process is not None and self.process.poll() is None

    # -- talking to it ----------------------------------------------------------------------------------------------

    def qmp(self, cmd: str, **arguments: Any) -> Any:
        """Run a command of QEMU's control protocol; underscores in argument names stand for dashes."""
        if self._qmp is None:
            raise RuntimeError("the worker is powered off")
        return self._qmp(cmd, {name.replace("_", "-"): value for name, value in arguments.items()})

    def ssh(self, cmd: str, check: bool = True, input: Optional[Union[str, bytes]] = None) -> str:
        """Run a shell command as root and return its output (both streams when check is false); raise when it fails."""
        done = self.shell.run(cmd, input)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode:
            raise RuntimeError(f"on the worker, {cmd!r} ended with {done.returncode}:\n{out[-2000:]}{err[-2000:]}")
        return out if check else out + err

    def put(self, local: Path, remote: str) -> None:
        """Copy a file or folder to the worker."""
        self.shell.copy(str(local), f"worker:{remote}")

    def get(self, remote: str, local: Path) -> None:
        """Copy a file or folder from the worker."""
        self.shell.copy(f"worker:{remote}", str(local))

    def wait_ssh(self) -> None:
        """Wait until a login works and the devices there have their drivers (sshd does not wait for those)."""
        wait_for("ssh", lambda: self.shell.greets() and self.shell.run("udevadm settle").returncode == 0, self.running)

    def boot_id(self) -> str:
        """Return the kernel's id of this boot, "" when the worker does not answer."""
        done = self.shell.run("cat /proc/sys/kernel/random/boot_id")
        return done.stdout.decode().strip() if done.returncode == 0 else ""

    def reboot_and_wait(self) -> None:
        """Reboot from inside and return when the new system answers."""
        before = self.boot_id()
        self.ssh("systemctl reboot", check=False)
        self.shell.forget()
        self.wait_reboot(before)

    def wait_reboot(self, before: str) -> None:
        """Wait until the worker runs another boot than the one called before."""

        def came_back() -> bool:
            now = self.boot_id() if self.shell.greets() else ""
            if now in ("", before):
                self.shell.forget()
            return now not in ("", before)

        wait_for("the worker's return from its reboot", came_back, self.running)
        self.wait_ssh()

    def inventory_line(self) -> str:
        """Return the worker as one line of an Ansible inventory."""
        values = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": self.key,
            "ansible_ssh_common_args": f"'{' '.join(self.shell.common)}'",
            "ansible_ssh_pipelining": "true",
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        return f"{NAME} " + " ".join(f"{name}={value}" for name, value in values.items())

    # -- devices ----------------------------------------------------------------------------------------------------

    def plug(self, slot: Slot) -> str:
        """Hot-plug a device and return its address (function 0) once the kernel has it and udev is done."""
        self.servers.start(slot)
        # function 0 comes last: it makes the port look at the whole slot
        for device in reversed(slot.devices(self._sockets)):
            self.qmp("device_add", **device)
        self.slots.append(slot)
        return self._appeared(slot.port)

    def plug_device(self, name: str, port: int, *functions: Function) -> str:
        """Hot-plug a device of any functions to root port 1 to 12."""
        return self.plug(Slot(name, port, functions))

    def plug_edu(self, port: int = 11) -> str:
        """Hot-plug QEMU's test device, 1234:11e8."""
        self.qmp("device_add", driver="edu", id=f"edu{port}", bus=f"rp{port}")
        return self._appeared(port)

    def plug_nvme(self, port: int = 12, size_mib: int = 64) -> str:
        """Hot-plug an NVMe controller with an empty disk."""
        disk = self.files.work / f"nvme{port}.raw"
        with open(disk, "wb") as file:
            file.truncate(size_mib << 20)
        self.qmp("blockdev-add", driver="file", filename=str(disk), node_name=f"nvme-disk{port}")
        self.qmp("device_add", driver="nvme", id=f"nvme{port}", bus=f"rp{port}", serial=f"N{port}", drive=f"nvme-disk{port}")
        return self._appeared(port)

    def unplug(self, name: str) -> None:
        """Take a device out by QEMU's id (gpu0, gpu0-1, edu11, ...); for a slot's function 0 the whole slot goes."""
        self.qmp("device_del", id=name)
        self.slots = [slot for slot in self.slots if slot.name != name]

    def wait_gone(self, address: str) -> None:
        """Wait until the worker's kernel no longer has a PCI function."""
        wait_for(f"{address} to go", lambda: self.shell.run(f"test -e /sys/bus/pci/devices/{address}").returncode == 1, self.running)

    def device_log(self, name: str) -> str:
        """Return what was done to a function so far: FLR, RESET, map, unmap, set_irqs, dma_read, dma_write lines."""
        return self.servers.log(name).read_text(encoding="ascii")

    def _appeared(self, port: int) -> str:
        address = f"0000:{port:02x}:00.0"
        there = f"test -e /sys/bus/pci/devices/{address}/iommu_group || test -e /sys/bus/pci/devices/{address}/driver_override"
        wait_for(f"{address} on the worker", lambda: self.shell.run(there).returncode == 0, self.running)
        self.ssh("udevadm settle")
        return address


def prepared(hardware: Hardware, preparation: Preparation) -> Path:
    """Return a folder with state and disk.qcow2 of a worker that was booted, prepared and saved; make it on first use."""
    if hardware.boot != "direct":
        raise ValueError("a saved state is of a direct boot: GRUB would run only the first time")
    shape = command(hardware, Files(Path("work"), Path("sockets")))
    inputs = ["\0".join(shape), preparation.name, *preparation.inputs]
    return cached(f"worker-state-{preparation.name}", inputs, lambda place: _save(hardware, preparation, place), "30 s")


def _save(hardware: Hardware, preparation: Preparation, place: Path) -> None:
    with Worker(hardware, place / "work", {}, ()) as worker:
        worker._make_disk(None)
        worker._launch()
        worker.wait_ssh()
        preparation.run(worker)
        worker.ssh("sync; echo 3 >/proc/sys/vm/drop_caches")  # halves the state
        worker.shell.forget()
        worker.qmp("stop")
        worker.qmp("migrate-set-parameters", max_bandwidth=1 << 40)
        worker.qmp("migrate", uri=f"exec:cat >{place}/state")
        wait_for("the state to be saved", lambda: _migrated(worker), worker.running)
        worker.qmp("quit")
        assert worker.process is not None
        worker.process.wait()
        worker.files.disk.rename(place / "disk.qcow2")
    shutil.rmtree(place / "work")


def _migrated(worker: Worker) -> bool:
    status = worker.qmp("query-migrate").get("status")
    if status == "failed":
        raise RuntimeError(f"QEMU could not save the worker: see {worker.files.work / 'qemu.log'}")
    return bool(status == "completed")


def _warm(worker: Worker) -> None:
    """Load what hot-plugged devices will ask for, so that plugging takes a moment."""
    worker.ssh("modprobe -a nvidia snd_hda_intel nvme; udevadm settle")


PLAIN = Preparation("plain", _warm, ("modprobe -a nvidia snd_hda_intel nvme",))


@contextlib.contextmanager
def timed_worker(workdir: Path, **options: Any) -> Iterator[Worker]:
    """Start a worker as Worker.start does, saying how long it takes, and stop it at the end."""
    with step("start the worker VM", "3 s restored, 20 s direct, 35 s by GRUB"):
        worker = Worker.start(workdir, **options)
    with worker:
        yield worker


if __name__ == "__main__":
    from .try_worker import main

    os.umask(0o022)
    main()

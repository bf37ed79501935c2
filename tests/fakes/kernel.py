"""A kernel for the host trees: reacts to writes as drivers/base and vfio-pci do, and to the few commands that matter.

The rules are those measured on Debian's 6.12: a probe with an override binds that driver or none, a probe of a bound
function does nothing, every write is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root

from .host import FakeHost


class Killed(BaseException):
    """The process ended in the middle of its work; nothing in the runtime may catch it."""


@dataclass
class FakeKernel:
    """natives: driver by address. refusing: vfio-pci's probe fails there. hanging: an unbind there does not return.

    answers: output by the command's first word (exit code 0); a command that is not listed is not installed.
    dies_after: number of writes after which the process is killed, None for never.
    """

    host: FakeHost
    natives: dict[str, str] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    dies_after: Optional[int] = None
    writes: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)

    @property
    def root(self) -> Root:
        """Return the Root over the host's tree with this kernel behind it."""
        return Root(base=self.host.base, runner=self.run, kernel_writer=self.write)

    def run(self, command: Sequence[str], _timeout: float) -> Done:
        """Answer a command from the table; modprobe vfio-pci makes the driver."""
        self.commands.append(list(command))
        if list(command) == ["modprobe", "vfio-pci"]:
            (self.host.base / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True, exist_ok=True)
            return Done(0, "", "")
        if command[0] not in self.answers:
            raise Absent(what="run a command", subject=command[0], cause="no such program on this machine")
        return Done(0, self.answers[command[0]], "")

    def write(self, path: Path, text: str, _timeout: Optional[float]) -> None:
        """React to one write."""
        if self.dies_after is not None and len(self.writes) >= self.dies_after:
            raise Killed
        self.writes.append(f"{path.parent.name if path.name == 'driver_override' else text.strip()} {path.name} {text.strip()}".strip())
        if path.name == "driver_override":
            path.write_text(text if text.strip() else "(null)\n", encoding="ascii")
        elif path.name == "unbind":
            if text in self.hanging:
                raise Timeout(what="write a kernel attribute", subject=f"{path} <- {text}", cause="the write did not return within 60 s")
            self.host.bind(self.host.folder_of(text), "")
        elif path.name == "drivers_probe":
            self._probe(text)

    def driver(self, address: str) -> str:
        """Return the driver of a function, empty when it has none."""
        link = self.host.folder_of(address) / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def override(self, address: str) -> str:
        """Return the text of the function's override."""
        return (self.host.folder_of(address) / "driver_override").read_text(encoding="ascii").strip()

    def _probe(self, address: str) -> None:
        folder = self.host.folder_of(address)
        if self.driver(address):
            return
        override = self.override(address)
        wanted = self.natives.get(address, "") if override == "(null)" else override
        covered = (folder / "iommu_group").exists() and address not in self.refusing
        if wanted == "vfio-pci" and not (covered and (self.host.base / "sys/bus/pci/drivers/vfio-pci").exists()):
            return
        self.host.bind(folder, wanted)


GPUS = ("0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1")


def demo_host(base: Path) -> FakeKernel:
    """Return the machine of the demo: two GPUs with audio on nvidia and snd_hda_intel, root disk, management NIC, IOMMU active."""
    host = FakeHost(base)
    kernel = FakeKernel(host, answers={"dmesg": "", "ip": ADDRESSES, "udevadm": "", "systemctl": ""})
    intel(host)
    host.function("0000:00:00.0", "8086:29c0", "060000", group="0")
    disk = host.function("0000:00:03.0", "1af4:1042", "010000", driver="virtio-pci", group="1")
    nic = host.function("0000:00:04.0", "1af4:1041", "020000", driver="virtio-pci", group="2")
    for bus, group in (("01", "10"), ("02", "11")):
        host.function(f"0000:{bus}:00.0", "10de:2684", "030000", driver="nvidia", group=group, files={"reset_method": "flr bus\n"})
        host.function(f"0000:{bus}:00.1", "10de:22ba", "040300", driver="snd_hda_intel", group=group)
        kernel.natives[f"0000:{bus}:00.0"], kernel.natives[f"0000:{bus}:00.1"] = "nvidia", "snd_hda_intel"
    add_disk(host, disk, "vda", "254:0", "/")
    add_interface(host, nic, "eth0")
    host.write(
        "/proc/net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\n",
    )
    return kernel


ADDRESSES = '[{"ifname": "eth0", "addr_info": [{"family": "inet", "local": "10.0.2.15", "scope": "global"}]}]'


def intel(host: FakeHost, *, active: bool = True, arguments: str = "quiet") -> None:
    """Make the host an Intel machine whose firmware has a DMAR table."""
    host.write("/proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n")
    host.write("/proc/cmdline", arguments + "\n")
    host.write("/proc/sys/kernel/random/boot_id", "boot-1\n")
    host.write("/sys/firmware/acpi/tables/DMAR", "")
    host.write("/proc/interrupts", "  1:  0  IR-IO-APIC  1-edge  i8042\n")
    if active:
        (host.base / "sys/class/iommu/dmar0").mkdir(parents=True, exist_ok=True)


def add_disk(host: FakeHost, folder: Path, name: str, number: str, point: str = "") -> Path:
    """Put a block device below a function, mounted at point if one is given."""
    block = folder / "block" / name
    block.mkdir(parents=True)
    (block / "uevent").write_text(f"MAJOR={number.split(':', maxsplit=1)[0]}\nDEVNAME={name}\nDEVTYPE=disk\n", encoding="ascii")
    below = "/" + str(block.relative_to(host.base))
    host.link(f"/sys/class/block/{name}", below)
    host.link(f"/sys/dev/block/{number}", below)
    if point:
        mounts = host.base / "proc/self/mountinfo"
        before = mounts.read_text(encoding="ascii") if mounts.exists() else ""
        host.write("/proc/self/mountinfo", f"{before}26 1 {number} / {point} rw,noatime shared:1 - ext4 /dev/{name} rw\n")
    return block


def add_interface(host: FakeHost, folder: Path, name: str) -> Path:
    """Put a network interface below a function."""
    net = folder / "net" / name
    net.mkdir(parents=True)
    host.link(f"/sys/class/net/{name}", "/" + str(net.relative_to(host.base)))
    return net


def add_process(host: FakeHost, pid: int, name: str, *nodes: str) -> None:
    """Add a process that has nodes open."""
    folder = host.base / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n", encoding="ascii")
    for number, node in enumerate(nodes):
        (folder / str(number)).symlink_to(node)

"""The worker's hardware as QEMU's command line: one function per part, so that a snapshot can be keyed by the same text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from . import image, qemu

PORTS = 12
MAC = "52:54:00:11:00:01"
# slot of each part on the root bus; root ports take 3 to 14. The root disk comes first, so it is vda
SLOTS = {"root": 0x02, "display": 0x1B, "rng": 0x1C, "network": 0x1D}
FIRST_PORT, FIRST_EXTRA = 0x03, 0x10
Device = dict[str, Union[str, bool, int, dict[str, str]]]


@dataclass(frozen=True)
class Hardware:
    """What the guest can tell apart; two workers of equal hardware can share a snapshot.

    boot: "direct" (kernel handed over by QEMU) or "grub" (firmware, GRUB and /boot are real).
    iommu: True, False (none), or "intremap-off" (no interrupt remapping).
    extra_disks: raw images, attached read-only as vdb, vdc, ...
    default_arguments, preinstall: see image.worker_image.
    direct_arguments: kernel arguments of a direct boot alone; the last of one name holds.
    """

    boot: str = "direct"
    memory_mib: int = 4096
    iommu: Union[bool, str] = True
    extra_disks: tuple[Path, ...] = ()
    default_arguments: str = ""
    preinstall: bool = True
    direct_arguments: str = ""

    def image(self) -> Path:
        """Return the folder of the disk and kernel that it starts from."""
        return image.worker_image(self.default_arguments, self.preinstall)


@dataclass(frozen=True)
class Files:
    """Where one running worker keeps its files; sockets lie apart, for their paths must be short."""

    work: Path
    sockets: Path
    forwards: Mapping[int, int] = field(default_factory=dict)

    @property
    def disk(self) -> Path:
        """The worker's own changes to the disk."""
        return self.work / "disk.qcow2"

    @property
    def serial(self) -> Path:
        """What the worker said on its console."""
        return self.work / "serial.log"

    @property
    def qmp(self) -> Path:
        """QEMU's control socket."""
        return self.sockets / "qmp"


def command(hardware: Hardware, files: Files, devices: Sequence[Device] = (), incoming: str = "") -> list[str]:
    """Return QEMU's command line; devices are there at power-on, incoming is the URI of a saved state."""
    line = [str(qemu.qemu()), *machine(hardware), *disks(hardware, files), *display(), *network(files), *ports()]
    line += ["-chardev", f"file,id=serial,path={files.serial},append=on", "-serial", "chardev:serial"]
    line += ["-qmp", f"unix:{files.qmp},server=on,wait=off"]
    for device in devices:
        line += ["-device", json.dumps(device)]
    if hardware.boot == "direct":
        line += direct(hardware)
    return [*line, "-incoming", incoming] if incoming else line


def machine(hardware: Hardware) -> list[str]:
    """Processors, memory, chipset, IOMMU."""
    fast = qemu.accelerator()
    # qemu64 costs a fifth less than max under emulation: the guest's kernel and libraries pick plainer code
    line = ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,kernel-irqchip=split"]
    line += ["-accel", fast, "-cpu", "host" if fast == "kvm" else "qemu64", "-smp", "2", "-m", str(hardware.memory_mib)]
    if hardware.iommu:
        remap = "off" if hardware.iommu == "intremap-off" else "on"
        # caching-mode: vfio-user devices must hear of each mapping
        line += ["-device", f"intel-iommu,intremap={remap},caching-mode=on"]
    return line


def disks(hardware: Hardware, files: Files) -> list[str]:
    """The root disk, the extra disks, and for GRUB the firmware with its variables."""
    line = ["-drive", f"file={files.disk},if=none,id=root,cache=unsafe,discard=unmap"]
    line += ["-device", f"virtio-blk-pci,drive=root,addr={SLOTS['root']:#x}"]
    for number, path in enumerate(hardware.extra_disks):
        line += ["-drive", f"file={path},format=raw,readonly=on,if=none,id=extra{number}"]
        line += ["-device", f"virtio-blk-pci,drive=extra{number},addr={FIRST_EXTRA + number:#x}"]
    if hardware.boot == "grub":
        code = qemu.firmware("OVMF_CODE_4M.fd")
        line += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}"]
        line += ["-drive", f"if=pflash,format=raw,unit=1,file={files.work / 'vars.fd'}"]
    return line


def display() -> list[str]:
    """The board's own display, as servers have one: it is the boot console, so that the GPUs are not."""
    # romfile= empty: firmware and GRUB draw no text through a video ROM, which costs 10 s of a boot
    return ["-device", f"VGA,id=board,romfile=,vgamem_mb=16,addr={SLOTS['display']:#x}"]


def network(files: Files) -> list[str]:
    """The management interface behind user networking, a random number source, sound that goes nowhere."""
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for host, guest in files.forwards.items())
    line = ["-netdev", f"user,id=management{forwards}"]
    # romfile= empty: no network boot ROM to run
    line += ["-device", f"virtio-net-pci,netdev=management,mac={MAC},romfile=,addr={SLOTS['network']:#x}"]
    line += ["-object", "rng-builtin,id=rng", "-device", f"virtio-rng-pci,rng=rng,addr={SLOTS['rng']:#x}"]
    return [*line, "-audiodev", "none,id=silence"]


def ports() -> list[str]:
    """Empty root ports for hot-plug, with room for the BARs of what comes: nothing is reserved later."""
    line = []
    for number in range(1, PORTS + 1):
        place = f"id=rp{number},chassis={number},slot={number},addr={FIRST_PORT + number - 1:#x}"
        line += ["-device", f"pcie-root-port,{place},pref32-reserve=64M,mem-reserve=64M"]
    return line


def direct(hardware: Hardware) -> list[str]:
    """Kernel, initramfs and arguments, when QEMU hands them over itself."""
    folder = hardware.image()
    given = ["rw", "nokaslr", image.arguments(), hardware.default_arguments, hardware.direct_arguments]
    arguments = " ".join([f"root=LABEL={image.LABEL}", *(one for one in given if one)])
    return ["-kernel", str(folder / "vmlinux"), "-initrd", str(folder / "fast.cpio"), "-append", arguments]

"""spec.domain: CPU, memory, machine and firmware of the guest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from ..device.faults import Refused
from .amounts import Memory, Resources
from .devices import Devices
from .quantity import Quantity
from .schema import BOOLEAN, OPAQUE, TEXT, at_least, checked, nested, one_of, row

PULL_POLICY = one_of("Always", "IfNotPresent", "Never")
_MACHINES = {"q35": "pc-q35-", "virt": "virt-"}


def check_machine(name: str) -> str:
    """Return a machine type that KubeVirt permits (q35 on amd64, virt on arm64, and their versions), or Refused."""
    if name not in _MACHINES and not name.startswith(tuple(_MACHINES.values())):
        raise Refused(what="accept a machine type", subject=repr(name), cause="has to be q35 or one of its versions (pc-q35-...)")
    return name


def check_uuid(text: str) -> str:
    """Return a UUID's text, or Refused."""
    try:
        UUID(text)
    except ValueError as wrong:
        raise Refused(what="read a UUID", subject=repr(text), cause=str(wrong)) from wrong
    return text


@dataclass(frozen=True)
class GuestMapping:
    """numa.guestMappingPassthrough: the guest sees the host's NUMA nodes; it has no settings."""


@dataclass(frozen=True)
class Numa:
    """How the guest's NUMA nodes come about."""

    guest_mapping: GuestMapping | None = row("guestMappingPassthrough", nested(GuestMapping))


@dataclass(frozen=True)
class Cpu:
    """The guest's CPUs; 0 means unset, which counts as 1. dedicated: each has a CPU of the host for itself alone."""

    unserved: ClassVar[Mapping[str, str]] = {
        "features": "lists of CPU features are not served by this version",
        "realtime": "real-time guests are not served",
        "maxSockets": "CPU hot-plug is not served: a guest with host devices cannot move",
    }

    cores: int = row("cores", at_least(0), 0)
    sockets: int = row("sockets", at_least(0), 0)
    threads: int = row("threads", at_least(0), 0)
    model: str = row("model", TEXT, "")
    dedicated: bool = row("dedicatedCpuPlacement", BOOLEAN, default=False)
    isolate_emulator: bool = row("isolateEmulatorThread", BOOLEAN, default=False)
    numa: Numa | None = row("numa", nested(Numa))

    @property
    def guest_mapping(self) -> bool:
        """Return whether the guest sees the host's NUMA nodes."""
        return bool(self.numa and self.numa.guest_mapping)


@dataclass(frozen=True)
class Machine:
    """The machine type; empty means q35."""

    type: str = row("type", checked(check_machine), "")


@dataclass(frozen=True)
class Bios:
    """Boot by SeaBIOS, the default."""

    use_serial: bool = row("useSerial", BOOLEAN, default=False)


@dataclass(frozen=True)
class Efi:
    """Boot by UEFI; secure_boot unset means true, as for KubeVirt."""

    unserved: ClassVar[Mapping[str, str]] = {"persistent": "keeping UEFI variables is not served by this version"}

    secure_boot: bool | None = row("secureBoot", BOOLEAN)


@dataclass(frozen=True)
class Bootloader:
    """One of the two firmwares."""

    bios: Bios | None = row("bios", nested(Bios))
    efi: Efi | None = row("efi", nested(Efi))


@dataclass(frozen=True)
class KernelBootContainer:
    """The image that holds kernel and initrd; mounted whole, read-only, as an image volume of the pod."""

    image: str = row("image", TEXT, required=True)
    kernel_path: str = row("kernelPath", TEXT, "")
    initrd_path: str = row("initrdPath", TEXT, "")
    pull_policy: str = row("imagePullPolicy", PULL_POLICY, "")
    pull_secret: str = row("imagePullSecret", TEXT, "")


@dataclass(frozen=True)
class KernelBoot:
    """Start of a kernel without a boot loader."""

    container: KernelBootContainer | None = row("container", nested(KernelBootContainer))
    kernel_args: str = row("kernelArgs", TEXT, "")


@dataclass(frozen=True)
class Firmware:
    """What runs before the guest's system, and how the machine identifies itself."""

    bootloader: Bootloader | None = row("bootloader", nested(Bootloader))
    kernel_boot: KernelBoot | None = row("kernelBoot", nested(KernelBoot))
    uuid: str = row("uuid", checked(check_uuid), "")
    serial: str = row("serial", TEXT, "")


@dataclass(frozen=True)
class LaunchSecurity:
    """Memory that the host cannot read: at most one of the three kinds, their settings as they stand."""

    sev: Mapping[str, Any] | None = row("sev", OPAQUE)
    snp: Mapping[str, Any] | None = row("snp", OPAQUE)
    tdx: Mapping[str, Any] | None = row("tdx", OPAQUE)


@dataclass(frozen=True)
class Domain:
    """spec.domain."""

    devices: Devices = row("devices", nested(Devices), Devices())
    memory: Memory = row("memory", nested(Memory), Memory())
    resources: Resources = row("resources", nested(Resources), Resources())
    cpu: Cpu = row("cpu", nested(Cpu), Cpu())
    machine: Machine = row("machine", nested(Machine), Machine())
    firmware: Firmware = row("firmware", nested(Firmware), Firmware())
    launch_security: LaunchSecurity | None = row("launchSecurity", nested(LaunchSecurity))

    @property
    def guest_memory(self) -> Quantity | None:
        """Return the memory the guest sees: memory.guest, else the request, else the limit (KubeVirt's order); None when nothing says."""
        return self.memory.guest or self.resources.requests.memory or self.resources.limits.memory

    @property
    def topology(self) -> tuple[int, int, int]:
        """Return sockets, cores, threads; a CPU request or limit stands in, as sockets, where spec.domain.cpu gives no number."""
        cpu, asked = self.cpu, self.resources.requests.cpu or self.resources.limits.cpu
        if asked is not None and not (cpu.sockets or cpu.cores or cpu.threads):
            return max(1, asked.ceil()), 1, 1
        return cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1

    @property
    def cpus(self) -> int:
        """Return the number of the guest's CPUs."""
        sockets, cores, threads = self.topology
        return sockets * cores * threads

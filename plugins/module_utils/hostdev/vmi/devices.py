"""spec.domain.devices: what the guest has beside CPU and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..device.names import check_resource
from .names import check_alias, check_label
from .networks import Interface
from .schema import BOOLEAN, TEXT, Kind, at_least, checked, many, nested, one_of, row

_RESOURCE: Kind = checked(lambda text: check_resource(text, "deviceName"))
_NO_SCREEN = "guest displays and their input devices are not served by this version"


@dataclass(frozen=True)
class FeatureState:
    """An on-or-off object; `enabled` unset means what the place where it stands says."""

    enabled: bool | None = row("enabled", BOOLEAN)


@dataclass(frozen=True)
class Display:
    """virtualGPUOptions.display; for a PCI device only an explicit `enabled: true` does anything."""

    enabled: bool | None = row("enabled", BOOLEAN)
    ramfb: FeatureState | None = row("ramFB", nested(FeatureState))


@dataclass(frozen=True)
class GpuOptions:
    """virtualGPUOptions."""

    display: Display | None = row("display", nested(Display))


@dataclass(frozen=True)
class HostDevice:
    """One entry of hostDevices: a name, and either deviceName (device plugin) or a claim (DRA).

    claim_name and request_name are None when the key is absent; an empty text is a claim that lacks its name.
    """

    name: str = row("name", checked(check_alias), required=True)
    device_name: str = row("deviceName", _RESOURCE, "")
    claim_name: str | None = row("claimName", TEXT)
    request_name: str | None = row("requestName", TEXT)
    tag: str = row("tag", TEXT, "")

    @property
    def claimed(self) -> bool:
        """Return whether a claim is named, be it with empty names (KubeVirt's pointer that is not nil)."""
        return self.claim_name is not None or self.request_name is not None

    @property
    def drawn(self) -> bool:
        """Return whether the device comes from a claim (KubeVirt's pkg/dra/utils.go): one is named, and no resource."""
        return self.claimed and not self.device_name

    @property
    def display(self) -> Display | None:
        """Return the display options; host devices have none."""
        return None


@dataclass(frozen=True)
class Gpu(HostDevice):
    """One entry of gpus: a host device that may have a display."""

    options: GpuOptions | None = row("virtualGPUOptions", nested(GpuOptions))

    @property
    def display(self) -> Display | None:
        """Return virtualGPUOptions.display, or None when it is not set."""
        return self.options.display if self.options else None


@dataclass(frozen=True)
class DiskTarget:
    """How a disk looks to the guest; bus empty means KubeVirt's default for amd64, sata."""

    bus: str = row("bus", one_of("virtio", "sata", "scsi"), "")
    readonly: bool = row("readonly", BOOLEAN, default=False)


@dataclass(frozen=True)
class CdromTarget:
    """A CD-ROM; read-only unless said otherwise."""

    bus: str = row("bus", one_of("sata", "scsi"), "")
    readonly: bool = row("readonly", BOOLEAN, default=True)


@dataclass(frozen=True)
class Disk:
    """One disk: the volume of its name, shown as a disk (the default) or a CD-ROM."""

    unserved: ClassVar[Mapping[str, str]] = {"lun": "SCSI pass-through of LUNs is not served by this version"}

    name: str = row("name", checked(check_label), required=True)
    disk: DiskTarget | None = row("disk", nested(DiskTarget))
    cdrom: CdromTarget | None = row("cdrom", nested(CdromTarget))
    boot_order: int | None = row("bootOrder", at_least(1))
    serial: str = row("serial", TEXT, "")
    cache: str = row("cache", one_of("none", "writethrough", "writeback"), "")


@dataclass(frozen=True)
class Rng:
    """A virtio random number generator, fed from the host."""


@dataclass(frozen=True)
class Tpm:
    """An emulated TPM; enabled unset means true. persistent: its memory outlives the pod."""

    enabled: bool | None = row("enabled", BOOLEAN)
    persistent: bool | None = row("persistent", BOOLEAN)


@dataclass(frozen=True)
class WatchdogTimer:
    """An Intel 6300ESB; action empty means reset, as for KubeVirt."""

    action: str = row("action", one_of("poweroff", "reset", "shutdown"), "")


@dataclass(frozen=True)
class Watchdog:
    """A watchdog that acts when the guest stops feeding it."""

    name: str = row("name", checked(check_alias), required=True)
    i6300esb: WatchdogTimer | None = row("i6300esb", nested(WatchdogTimer))


@dataclass(frozen=True)
class Devices:
    """spec.domain.devices. Automatic devices: None means KubeVirt's default where we serve it."""

    unserved: ClassVar[Mapping[str, str]] = {
        "networkInterfaceMultiqueue": "several queues per network card are not served by this version",
        "inputs": _NO_SCREEN,
        "video": _NO_SCREEN,
        "sound": _NO_SCREEN,
        "filesystems": "shared file systems are not served by this version",
    }

    gpus: tuple[Gpu, ...] = row("gpus", many(nested(Gpu)), ())
    host_device_list: tuple[HostDevice, ...] | None = row("hostDevices", many(nested(HostDevice)))
    disks: tuple[Disk, ...] = row("disks", many(nested(Disk)), ())
    interfaces: tuple[Interface, ...] = row("interfaces", many(nested(Interface)), ())
    rng: Rng | None = row("rng", nested(Rng))
    tpm: Tpm | None = row("tpm", nested(Tpm))
    watchdog: Watchdog | None = row("watchdog", nested(Watchdog))
    serial_console: bool | None = row("autoattachSerialConsole", BOOLEAN)
    log_serial_console: bool | None = row("logSerialConsole", BOOLEAN)
    graphics: bool | None = row("autoattachGraphicsDevice", BOOLEAN)
    pod_interface: bool | None = row("autoattachPodInterface", BOOLEAN)
    mem_balloon: bool | None = row("autoattachMemBalloon", BOOLEAN)

    @property
    def host_devices(self) -> tuple[HostDevice, ...]:
        """Return hostDevices; for admission alone an absent list differs from an empty one."""
        return self.host_device_list or ()

"""Disks of the guest: the files behind them (made by the launcher before it starts the domain) and their XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Mapping, Tuple, Union

from ..vmi.devices import CdromTarget, Disk, DiskTarget
from ..vmi.spec import Spec
from ..vmi.volumes import Volume
from .elements import element
from .settings import DomainSettings

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_DEFAULT_BUS = "sata"
_LETTERS: Mapping[str, str] = {"virtio": "vd", "sata": "sd", "scsi": "sd"}
# devices that need no legacy I/O ports: what KubeVirt gives virtio devices on q35
VIRTIO_MODEL = "virtio-non-transitional"


@dataclass(frozen=True)
class DiskFile:
    """A file that has to be there before the domain starts.

    path, format: the file itself, raw or qcow2. size: bytes of an empty disk, 0 for a layer over an image.
    image_folder: where the layer's image is mounted, empty for an empty disk. image_path: the file in it; empty means
    the only file below its folder `disk`, as in KubeVirt's container disks.
    """

    path: str
    format: str
    size: int = 0
    image_folder: str = ""
    image_path: str = ""


def disk_file(volume: Volume, settings: DomainSettings) -> DiskFile:
    """Return the file behind a volume."""
    if volume.container_disk:
        folder = f"{settings.container_disks}/{volume.name}"
        return DiskFile(f"{settings.disks}/{volume.name}.qcow2", "qcow2", 0, folder, volume.container_disk.path)
    size = volume.empty_disk.capacity.ceil() if volume.empty_disk else 0
    return DiskFile(f"{settings.disks}/{volume.name}.raw", "raw", size)


def disk_files(spec: Spec, settings: DomainSettings) -> List[DiskFile]:
    """Return the files that the launcher has to make, in the order of the volumes."""
    return [disk_file(volume, settings) for volume in spec.volumes]


def _target(disk: Disk) -> Union[DiskTarget, CdromTarget]:
    return disk.cdrom or disk.disk or DiskTarget()


def _bus(disk: Disk) -> str:
    return _target(disk).bus or _DEFAULT_BUS


def _names(disks: Sequence[Disk]) -> List[str]:
    counts: Dict[str, int] = {}
    names: List[str] = []
    for disk in disks:
        prefix = _LETTERS[_bus(disk)]
        number = counts.get(prefix, 0)
        counts[prefix] = number + 1
        names.append(prefix + _letters(number))
    return names


def _letters(number: int) -> str:
    # a to z, then aa: as Linux names its disks
    text = chr(ord("a") + number % 26)
    return text if number < 26 else _letters(number // 26 - 1) + text


def disk_elements(spec: Spec, settings: DomainSettings) -> Tuple[Element, ...]:
    """Return the <disk> elements in the order of the manifest's disks."""
    disks = spec.domain.devices.disks
    volumes = {volume.name: volume for volume in spec.volumes}
    return tuple(_disk_element(disk, name, disk_file(volumes[disk.name], settings)) for disk, name in zip(disks, _names(disks)))


def _disk_element(disk: Disk, name: str, file: DiskFile) -> Element:
    bus, cdrom = _bus(disk), disk.cdrom is not None
    driver = {"name": "qemu", "type": file.format, "cache": disk.cache or None, "error_policy": "stop", "discard": "unmap"}
    return element(
        "disk",
        {"type": "file", "device": "cdrom" if cdrom else "disk", "model": VIRTIO_MODEL if bus == "virtio" else None},
        element("driver", driver),
        element("source", {"file": file.path}),
        element("target", {"dev": name, "bus": bus}),
        element("readonly") if _target(disk).readonly else None,
        element("serial", text=disk.serial) if disk.serial else None,
        element("boot", {"order": disk.boot_order}) if disk.boot_order else None,
        element("alias", {"name": f"ua-{disk.name}"}),
    )


def needs_scsi(spec: Spec) -> bool:
    """Return whether a disk is on a SCSI bus, which needs its controller named."""
    return any(_bus(disk) == "scsi" for disk in spec.domain.devices.disks)

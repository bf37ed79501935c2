"""The pod's volumes and where its container has them. No I/O.

Images are read-only image volumes (KEP-4639). A hostDisk is the one thing that Pod Security's level "restricted" does not
allow: its namespace has to be privileged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Optional

from ..vmi import mounts
from ..vmi.spec import Spec
from ..vmi.volumes import Volume
from .networks import VOLUME, information_volume

Object = dict[str, Any]
_LONGEST = 63
RESTRICTED, PRIVILEGED = "restricted", "privileged"


@dataclass
class Volumes:
    """Volumes of the pod, mounts and block devices of its container, in the order in which they were added."""

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    devices: list[Object] = field(default_factory=list)

    def add(self, name: str, source: Object, place: str, *, fixed: bool = True) -> None:
        """Add a volume that is mounted; fixed: read-only."""
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": place, **({"readOnly": True} if fixed else {})})

    def add_block(self, name: str, source: Object, place: str) -> None:
        """Add a volume that is a block device."""
        self.volumes.append({"name": name, **source})
        self.devices.append({"name": name, "devicePath": place})


def security_level(spec: Spec) -> str:
    """Return the level of Pod Security that the pod's namespace has to allow."""
    return PRIVILEGED if any(volume.host_disk for volume in spec.volumes) else RESTRICTED


def add_volumes(made: Volumes, spec: Spec, blocks: Collection[str] = ()) -> None:
    """Add everything that a guest's spec needs; blocks: names of the PersistentVolumeClaims whose volumeMode is Block."""
    boot, pages = spec.domain.firmware.kernel_boot, spec.domain.memory.hugepages
    if boot and boot.container:
        made.add("kernel-boot", _image(boot.container.image, boot.container.pull_policy), mounts.KERNEL_BOOT)
    if spec.sriov:
        made.add(VOLUME, information_volume(), mounts.POD_INFO)
    if pages:
        made.add("hugepages", {"emptyDir": {"medium": "HugePages"}}, mounts.HUGEPAGES, fixed=False)
    for volume in spec.volumes:
        _add_disk(made, volume, _pod_name("disk", volume.name), blocks)


def pull_secrets(spec: Spec) -> list[str]:
    """Return the names of the Secrets with which images are pulled, each once."""
    boot = spec.domain.firmware.kernel_boot
    kernel = [boot.container.pull_secret] if boot and boot.container else []
    named = [*kernel, *(volume.container_disk.pull_secret for volume in spec.volumes if volume.container_disk)]
    return list(dict.fromkeys(name for name in named if name))


def _add_disk(made: Volumes, volume: Volume, name: str, blocks: Collection[str]) -> None:
    objects = f"{mounts.OBJECTS}/{volume.name}"
    if volume.container_disk:
        disk = volume.container_disk
        made.add(name, _image(disk.image, disk.pull_policy), mounts.container_disk_folder(volume.name))
    elif volume.claim:
        claim = {"claimName": volume.claim.claim_name, **({"readOnly": True} if volume.claim.read_only else {})}
        if volume.claim.claim_name in blocks:
            made.add_block(name, {"persistentVolumeClaim": claim}, f"{mounts.BLOCKS}/{volume.name}")
        else:
            made.add(name, {"persistentVolumeClaim": claim}, f"{mounts.CLAIMS}/{volume.name}", fixed=volume.claim.read_only)
    elif volume.host_disk:
        folder, _slash, _file = volume.host_disk.path.rpartition("/")
        kind = "Directory" if volume.host_disk.type == "Disk" else "DirectoryOrCreate"
        made.add(name, {"hostPath": {"path": folder, "type": kind}}, f"{mounts.HOST_DISKS}/{volume.name}", fixed=False)
    elif volume.config_map:
        made.add(name, {"configMap": {"name": volume.config_map.name, **_optional(volume.config_map.optional)}}, objects)
    elif volume.secret:
        made.add(name, {"secret": {"secretName": volume.secret.name, **_optional(volume.secret.optional)}}, objects)
    elif volume.cloud_init:
        for part, secret in volume.cloud_init.secrets:
            made.add(_pod_name(part, volume.name), {"secret": {"secretName": secret}}, f"{objects}-{part}")


def _pod_name(part: str, name: str) -> str:
    """Return the pod's name of a volume: Kubernetes allows 63 characters, as for the guest's own name."""
    made = f"{part}-{name}"
    return made if len(made) <= _LONGEST else f"{made[: _LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _optional(wanted: Optional[bool]) -> Object:
    return {} if wanted is None else {"optional": wanted}


def _image(reference: str, policy: str) -> Object:
    return {"image": {"reference": reference, **({"pullPolicy": policy} if policy else {})}}

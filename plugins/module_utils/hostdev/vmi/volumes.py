"""spec.volumes: where a disk's bytes come from. One row per kind; others join the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from .domain import PULL_POLICY
from .names import check_label
from .quantity import Quantity
from .schema import QUANTITY, TEXT, checked, nested, row

_STORAGE = "volumes of the cluster's storage are not served by this version"
_CONFIG = "disks made from the cluster's objects are not served by this version"


@dataclass(frozen=True)
class EmptyDisk:
    """A scratch disk that the launcher makes; gone with the pod."""

    capacity: Quantity = row("capacity", QUANTITY, required=True)


@dataclass(frozen=True)
class ContainerDisk:
    """A disk image inside a container image; writes go to a layer that is gone with the pod.

    path: the file inside the image; empty means the only file below /disk, as for KubeVirt.
    """

    image: str = row("image", TEXT, required=True)
    path: str = row("path", TEXT, "")
    pull_policy: str = row("imagePullPolicy", PULL_POLICY, "")
    pull_secret: str = row("imagePullSecret", TEXT, "")


@dataclass(frozen=True)
class Volume:
    """One volume: a name and exactly one source."""

    unserved: ClassVar[Mapping[str, str]] = {
        "hostDisk": "a file of the node is refused: the pod would need the node's file system",
        "persistentVolumeClaim": _STORAGE,
        "dataVolume": _STORAGE,
        "ephemeral": _STORAGE,
        "cloudInitNoCloud": _CONFIG,
        "cloudInitConfigDrive": _CONFIG,
        "configMap": _CONFIG,
        "secret": _CONFIG,
        "serviceAccount": _CONFIG,
        "downwardAPI": _CONFIG,
        "sysprep": _CONFIG,
    }

    name: str = row("name", checked(check_label), required=True)
    empty_disk: EmptyDisk | None = row("emptyDisk", nested(EmptyDisk))
    container_disk: ContainerDisk | None = row("containerDisk", nested(ContainerDisk))

    @property
    def sources(self) -> int:
        """Return how many sources the volume has; one is right."""
        return sum(source is not None for source in (self.empty_disk, self.container_disk))

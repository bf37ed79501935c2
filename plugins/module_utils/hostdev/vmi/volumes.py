"""spec.volumes: where a disk's bytes come from. One field per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from .domain import PULL_POLICY
from .names import check_file, check_label, check_object_name
from .quantity import Quantity
from .schema import BOOLEAN, QUANTITY, TEXT, checked, nested, one_of, row

_STORAGE = "volumes of the cluster's storage are not served by this version"
_CONFIG = "disks of this kind are not served by this version"


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
class ClaimedVolume:
    """A PersistentVolumeClaim of the guest's namespace: the file disk.img in it, or the block device that it is."""

    unserved: ClassVar[Mapping[str, str]] = {"hotpluggable": "hot-plug of disks is not served"}

    claim_name: str = row("claimName", checked(check_object_name), required=True)
    read_only: bool = row("readOnly", BOOLEAN, default=False)


@dataclass(frozen=True)
class HostDisk:
    """A file of the node, or with DiskOrCreate one of this capacity that is made; its namespace has to be privileged."""

    path: str = row("path", checked(check_file), required=True)
    type: str = row("type", one_of("Disk", "DiskOrCreate"), required=True)
    capacity: Quantity | None = row("capacity", QUANTITY)
    shared: bool = row("shared", BOOLEAN, default=False)


@dataclass(frozen=True)
class Reference:
    """An object of the guest's namespace, by its name."""

    name: str = row("name", checked(check_object_name), required=True)


@dataclass(frozen=True)
class CloudInit:
    """What cloud-init reads in the guest: each part as text, as base64, or in a Secret (keys userdata and networkdata)."""

    user_data: str = row("userData", TEXT, "")
    user_data_base64: str = row("userDataBase64", TEXT, "")
    secret: Reference | None = row("secretRef", nested(Reference))
    network_data: str = row("networkData", TEXT, "")
    network_data_base64: str = row("networkDataBase64", TEXT, "")
    network_secret: Reference | None = row("networkDataSecretRef", nested(Reference))

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """Return the parts that are in Secrets, userdata or networkdata, each with its Secret's name."""
        parts = (("userdata", self.secret), ("networkdata", self.network_secret))
        return tuple((part, reference.name) for part, reference in parts if reference)


@dataclass(frozen=True)
class ConfigMapDisk:
    """A disk made of a ConfigMap's keys; optional: empty when there is no such ConfigMap."""

    name: str = row("name", checked(check_object_name), required=True)
    optional: bool | None = row("optional", BOOLEAN)
    label: str = row("volumeLabel", TEXT, "")


@dataclass(frozen=True)
class SecretDisk:
    """A disk made of a Secret's keys; optional: empty when there is no such Secret."""

    name: str = row("secretName", checked(check_object_name), required=True)
    optional: bool | None = row("optional", BOOLEAN)
    label: str = row("volumeLabel", TEXT, "")


@dataclass(frozen=True)
class Volume:
    """One volume: a name and exactly one source."""

    unserved: ClassVar[Mapping[str, str]] = {
        "dataVolume": f"{_STORAGE}; name its claim in persistentVolumeClaim",
        "ephemeral": _STORAGE,
        "serviceAccount": _CONFIG,
        "downwardAPI": _CONFIG,
        "sysprep": _CONFIG,
    }

    name: str = row("name", checked(check_label), required=True)
    empty_disk: EmptyDisk | None = row("emptyDisk", nested(EmptyDisk))
    container_disk: ContainerDisk | None = row("containerDisk", nested(ContainerDisk))
    claim: ClaimedVolume | None = row("persistentVolumeClaim", nested(ClaimedVolume))
    host_disk: HostDisk | None = row("hostDisk", nested(HostDisk))
    no_cloud: CloudInit | None = row("cloudInitNoCloud", nested(CloudInit))
    config_drive: CloudInit | None = row("cloudInitConfigDrive", nested(CloudInit))
    config_map: ConfigMapDisk | None = row("configMap", nested(ConfigMapDisk))
    secret: SecretDisk | None = row("secret", nested(SecretDisk))

    @property
    def sources(self) -> int:
        """Return how many sources the volume has; one is right."""
        return sum(getattr(self, one.name) is not None for one in fields(self) if one.name != "name")

    @property
    def cloud_init(self) -> CloudInit | None:
        """Return what cloud-init reads, of either kind."""
        return self.no_cloud or self.config_drive

"""Mediated devices as frozen values, and the one way in which the names of their types are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Mdev:
    """One mediated device (Documentation/driver-api/vfio-mediated-device.rst).

    type_id: the name of its type's folder ("nvidia-222"). type_name: the content of the type's `name` file, empty where
    there is none. parent: the PCI address, or the name, of the device that it is a part of. iommu_group: empty when it
    has none. numa_node: its parent's.
    """

    uuid: str
    type_id: str
    type_name: str
    parent: str
    iommu_group: str = ""
    numa_node: Optional[int] = None
    upstream: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """Return the name of its type as people know it."""
        return self.type_name.strip() or self.type_id

    def is_of(self, wanted: str) -> bool:
        """Return whether its type's name or id is the wanted one."""
        return type_key(wanted) in (type_key(self.type_name), type_key(self.type_id))


def type_key(text: str) -> str:
    """Return how a type's name or id is compared: trimmed, then each space an underscore.

    KubeVirt replaces before it trims, and only on one side where it creates devices (virt-handler's device manager);
    here the declaration and the kernel's text go the same way.
    """
    return text.strip().replace(" ", "_")

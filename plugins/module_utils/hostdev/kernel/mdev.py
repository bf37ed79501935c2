"""Reader of mediated devices from sysfs (drivers/vfio/mdev/mdev_sysfs.c)."""

from __future__ import annotations

import os
import re
from typing import Optional

from ..device.mdev import Mdev
from ..root import Root, entries, number_of, read_link_name, read_text
from .pci import group_of, upstream_of

DEVICES = "/sys/bus/mdev/devices"
_UUID = re.compile(r"[0-9A-Fa-f-]{36}")


def read_mdevs(root: Root) -> tuple[Mdev, ...]:
    """Return every mediated device in the order of the uuids; none where the kernel has none."""
    folder = root.at(DEVICES)
    return tuple(one for name in entries(folder) if _UUID.fullmatch(name) and (one := _read(f"{folder}/{name}", name)))


def _read(place: str, uuid: str) -> Optional[Mdev]:
    try:
        target = os.readlink(place)
    except OSError:
        # the bus holds links only, and what left in between holds nothing
        return None
    parent = os.path.basename(os.path.dirname(target))
    return Mdev(
        uuid=uuid,
        type_id=read_link_name(f"{place}/mdev_type") or "",
        type_name=read_text(f"{place}/mdev_type/name") or "",
        parent=parent,
        iommu_group=group_of(read_link_name(f"{place}/iommu_group") or ""),
        numa_node=number_of(read_text(f"{place}/../numa_node")),
        upstream=upstream_of(target)[:-1],
    )

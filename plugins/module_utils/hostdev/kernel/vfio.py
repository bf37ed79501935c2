"""Reader of what is bound to VFIO drivers, which looks at nothing else: the folder of a driver lists what is bound to it.

This is the device plugin's hot path, and written for it: paths are text, and each fact costs one call of the kernel. A
machine of thousands of functions costs no more than one with the bound ones alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Optional

from ..device.address import Address
from ..device.pci import Function, Group
from ..root import Root, number_of, read_text
from .pci import DEVICES, GROUPS, VGPU, group_of, read_total, upstream_of

DRIVERS = "/sys/bus/pci/drivers"
_CLASS = "/sys/class/vfio-dev"
_VENDOR_DRIVERS = ("nvidia",)


def bound_functions(root: Root) -> Iterator[tuple[str, str]]:
    """Yield (address, driver) of every function that may be usable by a guest, in no order.

    Those are the functions of drivers that have VFIO in their names (all of the kernel's have), of drivers that keep their
    virtual functions for vGPUs, and what else has registered with VFIO.
    """
    base, seen = root.prefix + DRIVERS, set()
    for driver in _names(base):
        if "vfio" in driver or driver in _VENDOR_DRIVERS:
            for name in _names(f"{base}/{driver}"):
                if ":" in name:
                    seen.add(name)
                    yield name, driver
    registered = root.prefix + _CLASS
    for device in _names(registered):
        name = _parent(f"{registered}/{device}")
        if name.count(":") == 2 and name not in seen and (driver := driver_of(root, name)):
            seen.add(name)
            yield name, driver


def read_bound(root: Root, name: str, driver: str) -> Optional[Function]:
    """Return what the plugin has to know of a bound function, in as few calls as it takes; None when it has just gone.

    Left out, and empty in what is returned, are the attributes that only preparing a host needs: see pci.read_function.
    """
    folder = f"{root.prefix}{DEVICES}/{name}"
    told, address = read_text(folder + "/uevent"), Address.find(name)
    if told is None or address is None:
        return None
    words = dict(line.split("=", 1) for line in told.split("\n") if "=" in line)
    vendor, _mark, device = words.get("PCI_ID", "0:0").lower().partition(":")
    vendor_driver = driver in _VENDOR_DRIVERS
    return Function(
        address,
        vendor,
        device,
        words.get("PCI_CLASS", "0").lower().zfill(6),
        driver=driver,
        iommu_group=group_of(_link(folder + "/iommu_group")),
        numa_node=number_of(read_text(folder + "/numa_node")),
        modalias=words.get("MODALIAS", ""),
        physfn=Address.find(_link(folder + "/physfn")),
        sriov_total=read_total(folder) if vendor_driver else None,
        vgpu_type=(read_text(folder + VGPU) or "") if vendor_driver else "",
        vfio_nodes=_listed(folder + "/vfio-dev"),
    )


def read_upstream(root: Root, address: Address) -> tuple[str, ...]:
    """Return what stands above a function and itself, from the root bus down."""
    try:
        return upstream_of(os.readlink(f"{root.prefix}{DEVICES}/{address}"))
    except OSError:
        return ()


def read_group_of(root: Root, number: str, known: Mapping[str, Function]) -> Group:
    """Return a group; members that are not among the known ones are read as far as viability needs."""
    members = []
    for name in _names(f"{root.prefix}{GROUPS}/{number}/devices"):
        # platform devices share the groups folder on arm64
        if name.count(":") == 2:
            member = known.get(name) or read_bound(root, name, driver_of(root, name))
            members += [member] if member else []
    return Group(number, tuple(sorted(members, key=lambda one: one.address)))


def driver_of(root: Root, name: str) -> str:
    """Return the driver of a function, empty when it has none."""
    return _link(f"{root.prefix}{DEVICES}/{name}/driver")


def _link(place: str) -> str:
    try:
        return os.readlink(place).rpartition("/")[2]
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _listed(folder: str) -> Optional[tuple[str, ...]]:
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return None


def _parent(link: str) -> str:
    """Return the device of ".../0000:01:00.0/vfio-dev/vfio0"."""
    try:
        return os.readlink(link).rsplit("/", 3)[-3]
    except (OSError, IndexError):
        return ""

"""Reader of PCI functions and IOMMU groups from sysfs.

A scan costs one read per function (its uevent); only functions that a declaration may mean, and the members of their
groups, are read whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Optional

from ..device.address import Address
from ..device.faults import Absent
from ..device.pci import Function, Group
from ..root import Root, entries, key_values, number_of, read_link_name, read_text

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
# below an NVIDIA virtual function's folder, the number of its vGPU profile
VGPU = "/nvidia/current_vgpu_type"


def scan(root: Root) -> Iterator[tuple[str, str, str]]:
    """Yield (address, "vendor:device", six-digit class) of every function that tells its ids, in no order.

    The three come from uevent (drivers/pci/pci-driver.c, pci_uevent); ids and class are lower case.
    """
    folder = str(root.at(DEVICES))
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise Absent(
            what="list PCI functions",
            subject=folder,
            cause=str(error.strerror),
            hint="is this a Linux machine with PCI, and is /sys mounted?",
        ) from error
    for name in names:
        if Address.find(name) is None:
            continue
        try:
            handle = os.open(f"{folder}/{name}/uevent", os.O_RDONLY)
        except OSError:
            continue
        try:
            text = os.read(handle, 4096)
        except OSError:
            continue
        finally:
            os.close(handle)
        at = text.find(b"PCI_ID=")
        if at >= 0:
            klass = text.find(b"PCI_CLASS=")
            code = text[klass + 10 : text.find(b"\n", klass)] if klass >= 0 else b""
            yield name, text[at + 7 : at + 16].decode("ascii", "replace").lower(), code.decode("ascii", "replace").strip().lower().zfill(6)


def has_pci(root: Root) -> bool:
    """Return whether this machine has PCI at all; without it a scan is Absent."""
    return os.path.isdir(root.prefix + DEVICES)


def read_function(root: Root, address: Address) -> Function:
    """Return the function at an address; Absent when there is none.

    Ids come from `vendor` and `device`, else from uevent (which made trees may have alone).
    """
    folder = f"{root.at(DEVICES)}/{address}"
    try:
        present = frozenset(os.listdir(folder))
    except OSError as error:
        raise Absent(
            what="read a PCI function",
            subject=str(address),
            cause="there is no such function on this machine",
            hint="lspci -Dnn lists what there is",
        ) from error

    def text(name: str) -> Optional[str]:
        return read_text(f"{folder}/{name}") if name in present else None

    def link(name: str) -> str:
        return (read_link_name(f"{folder}/{name}") if name in present else None) or ""

    told = key_values(text("uevent") or "")
    vendor, _sep, device = told.get("PCI_ID", "0:0").lower().partition(":")
    sub_vendor, _sep, sub_device = told.get("PCI_SUBSYS_ID", "").lower().partition(":")
    subsystem = (_hex(text("subsystem_vendor"), sub_vendor), _hex(text("subsystem_device"), sub_device))
    return Function(
        address=address,
        vendor=_hex(text("vendor"), vendor),
        device=_hex(text("device"), device),
        class_code=_hex(text("class"), told.get("PCI_CLASS", "0").lower().zfill(6)),
        subsystem=":".join(part for part in subsystem if part),
        driver=link("driver"),
        override=_override(text("driver_override")),
        iommu_group=group_of(link("iommu_group")),
        numa_node=number_of(text("numa_node")),
        boot_vga=text("boot_vga") == "1",
        modalias=text("modalias") or told.get("MODALIAS", ""),
        physfn=_physfn(link("physfn")),
        sriov_total=read_total(folder) if "sriov_totalvfs" in present else None,
        sriov_active=number_of(text("sriov_numvfs")) or 0,
        vgpu_type=(read_text(folder + VGPU) or "") if "nvidia" in present else "",
        reset_methods=tuple((text("reset_method") or "").split()),
        vfio_nodes=tuple(entries(Path(folder, "vfio-dev"))) if "vfio-dev" in present else None,
    )


def read_group(root: Root, number: str, read: Optional[Callable[[Address], Function]] = None) -> Group:
    """Return an IOMMU group with all its members, in address order; without members when it is gone.

    read: what gives the function at an address, where it may be known already.
    """
    known = read or partial(read_function, root)
    names = entries(root.at(GROUPS) / number / "devices")
    # platform devices share the groups folder on arm64
    addresses = sorted(one for name in names if (one := Address.find(name)))
    return Group(number, tuple(known(address) for address in addresses))


def read_slot(root: Root, address: Address) -> tuple[Function, ...]:
    """Return all functions of the address's slot, in order; a slot has at most eight."""
    return tuple(read_function(root, place) for place in slot_of(address) if (root.at(DEVICES) / str(place)).exists())


def slot_of(address: Address) -> list[Address]:
    """Return the eight addresses that a slot's functions may have."""
    return [Address(address.domain, address.bus, address.slot, function) for function in range(8)]


def read_total(folder: str) -> Optional[int]:
    """Return how many virtual functions the function in a folder could have; None when it is no physical function."""
    text = read_text(f"{folder}/sriov_totalvfs")
    if text is None and not os.path.exists(f"{folder}/sriov_totalvfs"):
        return None
    # a physical function that does not tell how many it could have has at least one
    number = number_of(text)
    return 1 if number is None else number


def group_of(name: str) -> str:
    """Return the number of an IOMMU group as text, of the last part of a link; empty for anything that is none."""
    return name if number_of(name) is not None else ""


def upstream_of(target: str) -> tuple[str, ...]:
    """Return what stands above a device and the device itself, from the root bus down, of its link in a bus folder.

    "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0" gives ("pci0000:00", "0000:00:01.0", "0000:01:00.0").
    """
    _up, found, below = target.partition("devices/pci")
    return tuple(f"pci{below}".split("/")) if found else ()


def _hex(text: Optional[str], otherwise: str) -> str:
    return text[2:].lower() if text and text.startswith("0x") else otherwise


def _override(text: Optional[str]) -> str:
    # an unset driver_override reads "(null)"
    return "" if text in (None, "(null)") else str(text)


def _physfn(name: str) -> Optional[Address]:
    return Address.find(name)

"""Reader of PCI functions and IOMMU groups from sysfs.

A scan costs one read per function (its uevent); only functions that a declaration may mean, and the members of their
groups, are read whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ..device.address import Address
from ..device.faults import Absent
from ..device.pci import Function, Group
from ..root import Root, entries, read_link_name, read_text

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"


def scan(root: Root) -> Iterator[tuple[str, str, str]]:
    """Yield (address, "vendor:device", six-digit class) of every function that tells its ids, in no order.

    The three come from uevent (drivers/pci/pci-driver.c, pci_uevent); ids and class are lower case.
    """
    folder = str(root.at(DEVICES))
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise Absent(
            what="list PCI functions", subject=folder, cause=str(error.strerror), hint="is this a Linux machine with PCI, and is /sys mounted?"
        ) from error
    for name in names:
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


def read_function(root: Root, address: Address) -> Function:
    """Return the function at an address; Absent when there is none.

    Ids come from `vendor` and `device`, else from uevent (which made trees may have alone).
    """
    folder = root.at(DEVICES) / str(address)
    uevent = read_text(folder / "uevent")
    if uevent is None and not folder.exists():
        raise Absent(
            what="read a PCI function",
            subject=str(address),
            cause="there is no such function on this machine",
            hint="lspci -Dnn lists what there is",
        )
    told = dict(line.split("=", 1) for line in (uevent or "").splitlines() if "=" in line)
    vendor, _sep, device = told.get("PCI_ID", "0:0").lower().partition(":")
    sub_vendor, _sep, sub_device = told.get("PCI_SUBSYS_ID", "").lower().partition(":")
    total = _number(read_text(folder / "sriov_totalvfs"))
    nodes = folder / "vfio-dev"
    return Function(
        address=address,
        vendor=_hex(folder, "vendor", vendor),
        device=_hex(folder, "device", device),
        class_code=_hex(folder, "class", told.get("PCI_CLASS", "0").lower().zfill(6)),
        subsystem=":".join(
            part for part in (_hex(folder, "subsystem_vendor", sub_vendor), _hex(folder, "subsystem_device", sub_device)) if part
        ),
        driver=read_link_name(folder / "driver") or "",
        override=_override(read_text(folder / "driver_override")),
        iommu_group=read_link_name(folder / "iommu_group") or "",
        numa_node=_node(read_text(folder / "numa_node")),
        boot_vga=read_text(folder / "boot_vga") == "1",
        modalias=read_text(folder / "modalias") or told.get("MODALIAS", ""),
        physfn=_physfn(read_link_name(folder / "physfn")),
        sriov_total=1 if total is None and (folder / "sriov_totalvfs").exists() else total or 0,
        sriov_active=_number(read_text(folder / "sriov_numvfs")) or 0,
        vgpu_type=read_text(folder / "nvidia" / "current_vgpu_type") or "",
        reset_methods=tuple((read_text(folder / "reset_method") or "").split()),
        vfio_nodes=tuple(entries(nodes)) if nodes.is_dir() else None,
    )


def read_group(root: Root, number: str) -> Group:
    """Return an IOMMU group with all its members, in address order; without members when it is gone."""
    names = entries(root.at(GROUPS) / number / "devices")
    addresses = sorted(Address.parse(name) for name in names if _is_address(name))
    return Group(number, tuple(read_function(root, address) for address in addresses))


def read_slot(root: Root, address: Address) -> tuple[Function, ...]:
    """Return all functions of the address's slot, in order; a slot has at most eight."""
    places = [Address(address.domain, address.bus, address.slot, function) for function in range(8)]
    return tuple(read_function(root, place) for place in places if (root.at(DEVICES) / str(place)).exists())


def _is_address(name: str) -> bool:
    # platform devices share the groups folder on arm64
    return name.count(":") == 2


def _hex(folder: Path, name: str, otherwise: str) -> str:
    text = read_text(folder / name)
    return text[2:].lower() if text and text.startswith("0x") else otherwise


def _override(text: Optional[str]) -> str:
    # an unset driver_override reads "(null)"
    return "" if text in (None, "(null)") else str(text)


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() else None


def _node(text: Optional[str]) -> Optional[int]:
    return _number((text or "").strip())


def _physfn(name: Optional[str]) -> Optional[Address]:
    return Address.parse(name) if name else None

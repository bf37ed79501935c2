"""The whole view of place 1 for reports: inventory, refusals, IOMMU verdict. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..device.address import Address
from ..device.declaration import USB, Declaration
from ..device.pci import Function
from ..device.usb import UsbDevice, gather
from ..root import Root
from .bootloader import next_words
from .bound import describe
from .claims import read_claims, unmatched
from .facts import MachineFacts
from .inventory import read_inventory
from .iommu import read_iommu
from .pci import read_function, scan
from .record import read_record
from .safety import read_scene, refusals
from .usb import read_usb


def survey(root: Root, declaration: Declaration, management: Iterable[str] = ()) -> dict[str, Any]:
    """Return {"units", "skipped", "functions", "usb", "refused", "missing", "iommu"} for JSON; management as in pci_binding."""
    record = read_record(root)
    facts = MachineFacts(root, record.known)
    claims = read_claims(root, declaration, facts)
    layout = {address: one.group for address, one in record.functions.items() if one.group}
    return {
        **read_inventory(root, declaration, facts).as_dict(),
        "functions": describe(root, claims, record) if declaration.entries else everything(root),
        "usb": usb_bundles(root, declaration),
        "refused": [one.as_dict() for one in refusals(claims, read_scene(root, claims, management))],
        "missing": [entry.position for entry in unmatched(root, declaration, facts)],
        "iommu": read_iommu(root, [claim.primary for claim in claims], next_words(root), layout=layout).as_dict(),
    }


def usb_bundles(root: Root, declaration: Declaration) -> list[dict[str, Any]]:
    """Return the plugged bundles of each declared USB entry: resource, and port, vendor and product of its devices."""
    entries = declaration.of(USB).entries
    plugged = read_usb(root) if entries else ()
    return [
        {"resource": entry.resource, "devices": [_usb(one) for one in members]}
        for entry in entries
        for bundle in entry.bundles
        for members in gather(bundle, plugged)
    ]


def everything(root: Root) -> list[dict[str, Any]]:
    """Return every function of the machine but bridges, in address order."""
    functions = [read_function(root, Address.parse(name)) for name, _id, _class in scan(root)]
    return [_plain(one) for one in sorted(functions, key=lambda one: one.address) if not one.is_bridge]


def _usb(one: UsbDevice) -> dict[str, str]:
    vendor, product = one.id.split(":")
    return {"port": one.port, "vendor": vendor, "product": product}


def _plain(one: Function) -> dict[str, Any]:
    return {
        "address": str(one.address),
        "id": one.id,
        "class": one.class_code,
        "driver": one.driver,
        "group": one.iommu_group,
        "numa_node": one.numa_node,
        "boot_vga": one.boot_vga,
    }

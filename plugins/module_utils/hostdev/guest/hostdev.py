"""<hostdev> elements: values and their XML, for every kind of device of the host.

A PCI device is `mode='subsystem' type='pci' managed='no'` with a source address without `type`: what libvirt's schema
takes (KubeVirt's own form, a typed source address without mode, does not pass it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Optional

from ..device.address import Address
from .addresses import HostAddress, MdevAddress, UsbAddress
from .elements import Value, element

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

KINDS: Mapping[type, str] = {Address: "pci", MdevAddress: "mdev", UsbAddress: "usb"}
"""Type of a host address -> the type of its <hostdev>."""


@dataclass(frozen=True)
class GuestPlace:
    """A guest's PCI address; multifunction is said by function 0 of a slot that has more."""

    address: Address
    multifunction: bool = False


@dataclass(frozen=True)
class Hostdev:
    """One device of the host. alias: without libvirt's "ua-". guest: None lets libvirt choose.

    model: of a mediated device alone. iommufd and nodeset (ACPI nodes of device memory) need a libvirt that knows them.
    """

    alias: str
    source: HostAddress
    guest: Optional[GuestPlace] = None
    boot_order: Optional[int] = None
    display: bool = False
    ramfb: bool = False
    iommufd: bool = False
    nodeset: str = ""
    model: str = "vfio-pci"

    @property
    def kind(self) -> str:
        """Return pci, mdev or usb."""
        return KINDS[type(self.source)]


def coordinates(address: Address) -> Dict[str, str]:
    """Return domain, bus, slot and function as libvirt writes them."""
    return {
        "domain": f"0x{address.domain:04x}",
        "bus": f"0x{address.bus:02x}",
        "slot": f"0x{address.slot:02x}",
        "function": f"0x{address.function:x}",
    }


def guest_address(place: GuestPlace) -> Element:
    """Return the <address> of a device in the guest."""
    return element("address", {"type": "pci", **coordinates(place.address), "multifunction": "on" if place.multifunction else None})


def _kind_attributes(device: Hostdev) -> Dict[str, Value]:
    if device.kind == "pci":
        return {"managed": "no"}
    return {"model": device.model} if device.kind == "mdev" else {}


def _source(address: HostAddress) -> Mapping[str, Value]:
    if isinstance(address, Address):
        return coordinates(address)
    return {"uuid": address.uuid} if isinstance(address, MdevAddress) else {"bus": address.bus, "device": address.device}


def hostdev_element(device: Hostdev) -> Element:
    """Return the <hostdev> of a value; driver next to source, as the schema wants it."""
    return element(
        "hostdev",
        {
            "mode": "subsystem",
            "type": device.kind,
            **_kind_attributes(device),
            "display": "on" if device.display else None,
            "ramfb": "on" if device.ramfb else None,
        },
        element("source", {}, element("address", _source(device.source))),
        element("driver", {"iommufd": "yes"}) if device.iommufd else None,
        element("boot", {"order": device.boot_order}) if device.boot_order else None,
        guest_address(device.guest) if device.guest else None,
        element("alias", {"name": f"ua-{device.alias}"}),
        element("acpi", {"nodeset": device.nodeset}) if device.nodeset else None,
    )

"""PCI <hostdev> elements: from entries with their addresses to values, and from values to XML.

`mode='subsystem' type='pci' managed='no'` and a source address without `type`: what libvirt's schema takes (KubeVirt's
own form, a typed source address without mode, does not pass it). Order and aliases are KubeVirt's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..device.address import Address
from ..vmi.devices import Display
from .elements import element
from .sources import Entry, Unit

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

PREFIXES: Mapping[str, str] = {"gpus": "gpu-", "hostDevices": "hostdevice-"}
"""List of the manifest -> what its devices' aliases begin with (KubeVirt's AliasPrefix of each)."""


@dataclass(frozen=True)
class GuestPlace:
    """A guest's PCI address; multifunction is said by function 0 of a slot that has more."""

    address: Address
    multifunction: bool = False


@dataclass(frozen=True)
class PciHostdev:
    """One PCI hostdev. alias: without libvirt's "ua-". guest: None lets libvirt choose.

    iommufd and nodeset (ACPI nodes of device memory) need a libvirt that knows them.
    """

    alias: str
    source: Address
    guest: Optional[GuestPlace] = None
    boot_order: Optional[int] = None
    display: bool = False
    ramfb: bool = False
    iommufd: bool = False
    nodeset: str = ""


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


def hostdev_element(device: PciHostdev) -> Element:
    """Return the <hostdev> of a value; driver next to source, as the schema wants it."""
    return element(
        "hostdev",
        {
            "mode": "subsystem",
            "type": "pci",
            "managed": "no",
            "display": "on" if device.display else None,
            "ramfb": "on" if device.ramfb else None,
        },
        element("source", {}, element("address", coordinates(device.source))),
        element("driver", {"iommufd": "yes"}) if device.iommufd else None,
        element("boot", {"order": device.boot_order}) if device.boot_order else None,
        guest_address(device.guest) if device.guest else None,
        element("alias", {"name": f"ua-{device.alias}"}),
        element("acpi", {"nodeset": device.nodeset}) if device.nodeset else None,
    )


def _shows(display: Optional[Display]) -> Tuple[bool, bool]:
    # a PCI device shows nothing unless it is told to, in so many words (KubeVirt hostdevice/hostdev.go)
    enabled = bool(display and display.enabled)
    return enabled, bool(enabled and display and display.ramfb and display.ramfb.enabled)


def hostdevs(resolved: Sequence[Tuple[Entry, Unit]], buses: Iterable[int]) -> List[PciHostdev]:
    """Return the hostdevs of resolved entries, in their order.

    A unit with companions becomes one multifunction device: it takes the next of `buses`, the numbers of root ports that
    are kept for such, the primary as function 0, the companions in their order behind it.
    """
    free = iter(buses)
    made: List[PciHostdev] = []
    for entry, unit in resolved:
        alias = PREFIXES[entry.kind] + entry.device.name
        display, ramfb = _shows(entry.device.display)
        bus = next(free) if unit.companions else 0
        guest = GuestPlace(Address(0, bus, 0, 0), multifunction=True) if unit.companions else None
        made.append(PciHostdev(alias, unit.primary, guest, display=display, ramfb=ramfb))
        for number, companion in enumerate(unit.companions, start=1):
            made.append(PciHostdev(f"{alias}-f{number}", companion, GuestPlace(Address(0, bus, 0, number))))
    return made

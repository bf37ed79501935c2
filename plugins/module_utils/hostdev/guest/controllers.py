"""PCI controllers of the guest that we name ourselves; libvirt adds all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from .elements import element
from .hostdev import GuestPlace, guest_address

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

ROOT, ROOT_PORT, EXPANDER = "pcie-root", "pcie-root-port", "pcie-expander-bus"


@dataclass(frozen=True)
class Controller:
    """One PCI controller. hole_kib: size of the 64-bit PCI hole in KiB, None where libvirt decides. place: None likewise.

    bus_number, node: of an expander bus, its number for the guest and the guest's NUMA node that it belongs to.
    """

    index: int
    model: str
    hole_kib: Optional[int] = None
    place: Optional[GuestPlace] = None
    bus_number: Optional[int] = None
    node: Optional[int] = None


def controller_element(controller: Controller) -> Element:
    """Return the <controller> of a value."""
    return element(
        "controller",
        {"type": "pci", "index": controller.index, "model": controller.model},
        element("pcihole64", {"unit": "KiB"}, text=controller.hole_kib) if controller.hole_kib is not None else None,
        element("target", {"busNr": controller.bus_number}, element("node", text=controller.node)) if controller.node is not None else None,
        guest_address(controller.place) if controller.place else None,
    )

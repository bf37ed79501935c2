"""The kinds of device that are served: for each, how it is found, and what a container gets with it.

A new kind is a row here, a reader in kernel/ and a form in the declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from ..device.declaration import IOMMUFD, MDEV, NODE, PCI, USB, Declaration
from ..device.inventory import Skipped
from ..device.names import PREFIXES
from ..device.nodes import VFIO
from ..device.offer import Found, Offer
from ..kernel import offer_mdev, offer_node, offer_pci, offer_usb
from ..root import Root


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    find: the offers of a declaration; it is told what was offered before. gone: why a former offer is none any more.
    prefix: of the variable that names the devices, empty when none does. control: nodes that come with any unit.
    vfio: whether a guest locks its memory for it. prefers: whether it matters which units a container gets.
    one_place: whether all units are one grant, since they are one node. handover: whether a container is handed the node as
    an open descriptor too.
    """

    find: Callable[[Root, Declaration, Sequence[Offer]], Found]
    gone: Callable[[Root, Offer], str]
    prefix: str = ""
    control: tuple[str, ...] = ()
    vfio: bool = False
    prefers: bool = True
    one_place: bool = False
    handover: bool = False


KINDS: dict[str, Kind] = {
    PCI: Kind(offer_pci.find, offer_pci.gone, PREFIXES["pci"], (VFIO,), vfio=True),
    MDEV: Kind(offer_mdev.find, offer_mdev.gone, PREFIXES["mdev"], (VFIO,), vfio=True),
    USB: Kind(offer_usb.find, offer_usb.gone, PREFIXES["usb"]),
    NODE: Kind(offer_node.find, offer_node.gone, prefers=False, one_place=True),
    IOMMUFD: Kind(offer_node.find, offer_node.gone, prefers=False, one_place=True, handover=True),
}


def find(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> Found:
    """Return all offers of a declaration, kind by kind; of PCI functions no more is looked at than what is bound."""
    kinds = [kind for kind in KINDS if declaration.of(kind).entries]
    found = [KINDS[kind].find(root, declaration.of(kind), [offer for offer in former if offer.kind == kind]) for kind in kinds]
    offers = tuple(offer for one in found for offer in one.offers)
    return Found(offers, tuple(skipped for one in found for skipped in one.skipped))


def find_skipped(root: Root, declaration: Declaration) -> tuple[Skipped, ...]:
    """Return every declared device that is no healthy unit, each with its reason; this looks at the whole machine."""
    others = find(root, declaration.of(MDEV, USB, NODE, IOMMUFD)).skipped
    return (*(offer_pci.skipped(root, declaration) if declaration.of(PCI).entries else ()), *others)

"""The kinds of device that are served: for each, how it is found, and what a container gets with it.

A new kind is a row here, a reader in kernel/ and a form in the declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Callable, Optional

from ..device.declaration import IOMMUFD, MDEV, NODE, PCI, USB, Declaration
from ..device.faults import Fault
from ..device.inventory import UNREADABLE, Skipped
from ..device.names import PREFIXES
from ..device.nodes import VFIO
from ..device.offer import Found, Offer
from ..kernel import offer_mdev, offer_node, offer_pci, offer_usb
from ..root import Root


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    find: the offers of a declaration; it is told what was offered before. gone: why a former offer is none any more.
    silent: which device of a unit does not answer, asked before the unit is handed out. replaced: whether a former unit cannot
    come back, since units of its resource that were not there before have its devices. skipped: why other devices are none,
    where find does not tell that because it takes a look at more than what is offered.
    prefix: of the variable that names the devices, empty when none does. control: nodes that come with any unit where they exist.
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
    silent: Optional[Callable[[Root, Offer], str]] = None
    replaced: Optional[Callable[[Offer, Sequence[Offer]], bool]] = None
    skipped: Optional[Callable[[Root, Declaration, Sequence[Offer]], tuple[Skipped, ...]]] = None


KINDS: dict[str, Kind] = {
    PCI: Kind(offer_pci.find, offer_pci.gone, PREFIXES["pci"], (VFIO,), vfio=True, silent=offer_pci.silent, skipped=offer_pci.skipped),
    MDEV: Kind(offer_mdev.find, offer_mdev.gone, PREFIXES["mdev"], (VFIO,), vfio=True),
    USB: Kind(offer_usb.find, offer_usb.gone, PREFIXES["usb"], replaced=offer_usb.replaced),
    NODE: Kind(offer_node.find, offer_node.gone, prefers=False, one_place=True),
    IOMMUFD: Kind(offer_node.find, offer_node.gone, prefers=False, one_place=True, handover=True),
}


def find(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> Found:
    """Return all offers of a declaration, kind by kind; of PCI functions no more is looked at than what is bound.

    A kind that cannot be looked at keeps its former offers, and is told in `faults`.
    """
    kinds = [kind for kind in KINDS if declaration.of(kind).entries]
    found = [_found(root, kind, declaration.of(kind), [offer for offer in former if offer.kind == kind]) for kind in kinds]
    if len(found) == 1:
        return found[0]
    offers = tuple(chain.from_iterable(one.offers for one in found))
    skipped = tuple(chain.from_iterable(one.skipped for one in found))
    return Found(offers, skipped, tuple(chain.from_iterable(one.faults for one in found)))


def _found(root: Root, kind: str, declaration: Declaration, former: Sequence[Offer]) -> Found:
    try:
        return KINDS[kind].find(root, declaration, former)
    except (Fault, OSError) as fault:
        resources = set(declaration.resources)
        return Found(tuple(offer for offer in former if offer.resource in resources), faults=(str(fault),))


def find_skipped(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> tuple[Skipped, ...]:
    """Return every declared device that is no healthy unit, each with its reason; this looks at the whole machine.

    former: what is offered, and with that taken already. Of a kind that cannot be looked at each entry is told with the fault.
    """
    kinds = [kind for kind in KINDS if declaration.of(kind).entries]
    found = [_skipped(root, kind, declaration.of(kind), [offer for offer in former if offer.kind == kind]) for kind in kinds]
    return tuple(chain.from_iterable(found))


def _skipped(root: Root, kind: str, declaration: Declaration, former: Sequence[Offer]) -> tuple[Skipped, ...]:
    row = KINDS[kind]
    try:
        return row.skipped(root, declaration, former) if row.skipped else row.find(root, declaration, former).skipped
    except Fault as fault:
        cause, hint = f"cannot {fault.what}: {fault.subject}: {fault.cause}", fault.hint
    except OSError as error:
        cause, hint = str(error), ""
    return tuple(Skipped(" or ".join(entry.wanted), entry.resource, UNREADABLE, cause, hint) for entry in declaration.served)

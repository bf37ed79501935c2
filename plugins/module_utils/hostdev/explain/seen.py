"""Units as this machine shows them, of every kind, each with what the kernel knows of it in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..device.declaration import IOMMUFD, MDEV, NODE, PCI, USB, Declaration
from ..device.inventory import Unit
from ..device.offer import Offer
from ..kernel.inventory import read_inventory
from ..kernel.mdev import read_mdevs
from ..kernel.offer_pci import offer_of
from ..kernel.offer_usb import ports_of
from ..kernel.pci import has_pci
from ..kernel.usb import read_usb
from ..kube.kinds import find
from ..root import Root
from .mends import mend

Former = Sequence[Offer]


@dataclass(frozen=True)
class Seen:
    """One unit; all units of a node are one. name, values: as in Offer. evidence: what the kernel knows of it.

    trouble: why no guest can have it now, with its mend in hint. blockers: addresses of the functions that are the trouble.
    """

    kind: str
    resource: str
    id: str
    name: str
    values: tuple[str, ...] = ()
    evidence: str = ""
    trouble: str = ""
    hint: str = ""
    blockers: tuple[str, ...] = ()
    count: int = 1


def read_seen(root: Root, declaration: Declaration, served: Sequence[Mapping[str, Any]] = ()) -> tuple[Seen, ...]:
    """Return the units of every declared kind, in the declaration's order within a kind.

    served: units of the plugin's state file. What of them the machine does not have any more follows at the end, with the
    plugin's reason; USB devices that it joined to a bundle stay joined.
    """
    former = [Offer(one["kind"], one["resource"], one["id"], one["name"]) for one in served]
    kinds = [(read, declaration.of(kind), kind) for kind, read in _READERS.items() if declaration.of(kind).entries]
    found = [one for read, mine, kind in kinds for one in read(root, mine, [offer for offer in former if offer.kind == kind])]
    known, resources = {(one.resource, one.id) for one in found}, {entry.resource for entry in declaration.served}
    gone = [one for one in served if (one["resource"], one["id"]) not in known and one["reason"] and one["resource"] in resources]
    return (*found, *map(_gone, gone))


def _gone(unit: Mapping[str, Any]) -> Seen:
    hint = mend(unit.get("code", ""), unit["kind"])
    return Seen(unit["kind"], unit["resource"], unit["id"], unit["name"], tuple(unit["values"]), "", unit["reason"], hint)


def _seen(offer: Offer, evidence: str, count: int = 1, blockers: Sequence[str] = ()) -> Seen:
    hint = mend(offer.code, offer.kind)
    return Seen(offer.kind, offer.resource, offer.id, offer.name, offer.values, evidence, offer.reason, hint, tuple(blockers), count)


def _pci(root: Root, declaration: Declaration, _former: Former) -> list[Seen]:
    units = read_inventory(root, declaration).units if has_pci(root) else ()
    return [_seen(offer_of(root, unit), _unit_words(unit), blockers=[str(one.address) for one in unit.blockers]) for unit in units]


def _unit_words(unit: Unit) -> str:
    moved = f", companions {' '.join(str(one.address) for one in unit.companions)}" if unit.companions else ""
    others = [str(one.address) for one in unit.selected]
    shared = f"; {len(others) + 1} declared devices share the group and are one unit, with {' '.join(others)}" if others else ""
    return f"driver {unit.primary.driver}, IOMMU group {unit.group}{moved}{shared}"


def _mdev(root: Root, declaration: Declaration, _former: Former) -> list[Seen]:
    known = {one.uuid: one for one in read_mdevs(root)}

    def words(offer: Offer) -> str:
        one = known.get(offer.name)
        return f"mediated device of type {one.type}, parent {one.parent}, IOMMU group {offer.id}" if one else f"IOMMU group {offer.id}"

    return [_seen(offer, words(offer)) for offer in find(root, declaration).offers]


def _usb(root: Root, declaration: Declaration, former: Former) -> list[Seen]:
    known = {one.port: one for one in read_usb(root)}

    def words(port: str) -> str:
        one = known.get(port)
        return f"USB {one.id} at port {port}, {one.node}" if one else f"port {port}"

    return [_seen(offer, " with ".join(map(words, ports_of(offer)))) for offer in find(root, declaration, former).offers]


def _node(root: Root, declaration: Declaration, _former: Former) -> list[Seen]:
    offers = find(root, declaration).offers
    counts = Counter(offer.resource for offer in offers)
    first = {offer.resource: offer for offer in reversed(offers)}
    return [_seen(first[resource], f"character device {first[resource].name}", count) for resource, count in counts.items()]


_READERS: dict[str, Callable[[Root, Declaration, Former], list[Seen]]] = {PCI: _pci, MDEV: _mdev, USB: _usb, NODE: _node, IOMMUFD: _node}

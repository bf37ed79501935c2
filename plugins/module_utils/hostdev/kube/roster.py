"""The units of a node over time: what is offered now, and what was offered before and is not there any more."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Callable

from ..device.declaration import Declaration, Entry
from ..device.offer import GONE, Found, Offer
from ..root import Root
from .kinds import KINDS

Key = tuple[str, str]


def by_resource(offers: Iterable[Offer]) -> dict[str, tuple[Offer, ...]]:
    """Return the units of each resource, in their order."""
    found: dict[str, tuple[Offer, ...]] = {}
    # those of one resource mostly stand together, and a node has thousands
    for resource, units in groupby(offers, operator.attrgetter("resource")):
        found[resource] = (*found.get(resource, ()), *units)
    return found


def same(one: Sequence[Offer], other: Sequence[Offer]) -> bool:
    """Return whether these are the very same units, without comparing what they say: a node may have thousands."""
    return one is other or (len(one) == len(other) and all(map(operator.is_, one, other)))


def merge(root: Root, former: Sequence[Offer], found: Found, declared: Callable[[str, str], bool]) -> tuple[Offer, ...]:
    """Return the offers now; a former one that was not found again stays, unhealthy and with the reason.

    The kubelet shows a unit that leaves the list as unknown, an unhealthy one as what it is. A former unit goes when its
    resource is declared no more (declared: of resource and kind), when its device is offered under another id or resource,
    or when new units have what it was made of.
    """
    if same(former, found.offers):
        return tuple(former)
    before, after = by_resource(former), by_resource(found.offers)
    single = [offer for units in after.values() if not KINDS[units[0].kind].one_place for offer in units]
    taken = {(offer.kind, known) for offer in single for known in (offer.name, offer.id)}

    def stays(offer: Offer) -> bool:
        return declared(offer.resource, offer.kind) and not taken & {(offer.kind, offer.name), (offer.kind, offer.id)}

    merged: list[Offer] = []
    for resource in dict.fromkeys([*before, *after]):
        units, now = before.get(resource, ()), after.get(resource, ())
        merged += units if same(units, now) else _merged(root, units, now, stays)
    return tuple(merged)


def _merged(root: Root, former: Sequence[Offer], found: Sequence[Offer], stays: Callable[[Offer], bool]) -> Iterator[Offer]:
    now = {key_of(offer): offer for offer in found}
    known = set(map(key_of, former))
    fresh = [offer for key, offer in now.items() if key not in known]
    for offer in former:
        again, replaced = now.pop(key_of(offer), None), KINDS[offer.kind].replaced
        if again is not None:
            yield again
        elif stays(offer) and not (replaced and replaced(offer, fresh)):
            yield replace(offer, present=(), trouble=KINDS[offer.kind].gone(root, offer), trouble_code=GONE, proofs=())
    yield from now.values()


def retained(former: Sequence[Offer], before: Declaration, now: Declaration) -> tuple[Offer, ...]:
    """Return the former units that may stay though they are not found again after a change of the declaration, to be read anew.

    Those of a resource that lost an entry go: which of them the lost entry meant, only another look tells.
    """
    if before == now:
        return tuple(former)
    old, new = _meant(before), _meant(now)
    return tuple(replace(offer, proofs=()) for offer in former if old[offer.resource] <= new[offer.resource])


def _meant(declaration: Declaration) -> Mapping[str, set[Entry]]:
    meant: defaultdict[str, set[Entry]] = defaultdict(set)
    for entry in declaration.served:
        meant[entry.resource].add(replace(entry, position=""))
    return meant


def key_of(offer: Offer) -> Key:
    """Return what tells a unit from all others of the node."""
    return offer.resource, offer.id


def changes(before: Sequence[Offer], after: Sequence[Offer]) -> list[str]:
    """Return one line for each unit that came, went, or changed its health, its reason or its device; one for all of a node."""
    if same(before, after):
        return []
    old, new = by_resource(before), by_resource(after)
    pairs = [(old.get(resource, ()), new.get(resource, ())) for resource in dict.fromkeys([*old, *new])]
    return [line for former, now in pairs if not same(former, now) for line in dict.fromkeys(_changes(former, now))]


def _changes(before: Sequence[Offer], after: Sequence[Offer]) -> Iterator[str]:
    old = {offer.id: offer for offer in before}
    new = {offer.id: offer for offer in after}
    gone = [offer for number, offer in old.items() if number not in new]
    for offer in gone:
        some = KINDS[offer.kind].one_place and len(gone) < len(old)
        yield f"{offer.resource} {len(gone)} units ({offer.name}): gone" if some else f"{_label(offer)}: gone"
    for number, offer in new.items():
        earlier = old.get(number)
        if earlier is not None and (earlier.name, earlier.values) != (offer.name, offer.values):
            yield f"{_label(earlier)}: now {' '.join(dict.fromkeys([offer.name, *offer.values]))}"
        if earlier is None or (earlier.health, earlier.reason) != (offer.health, offer.reason):
            why = f": {offer.reason}" if offer.reason else ""
            yield f"{_label(offer)}: {offer.health}{why}"


def _label(offer: Offer) -> str:
    return f"{offer.resource} {'all units' if KINDS[offer.kind].one_place else offer.id} ({offer.name})"

"""The units of a node over time: what is offered now, and what was offered before and is not there any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Callable

from ..device.declaration import Declaration, Entry
from ..device.offer import GONE, Found, Offer
from ..root import Root
from .kinds import KINDS

Key = tuple[str, str]


def merge(root: Root, former: Sequence[Offer], found: Found, declared: Callable[[str, str], bool]) -> tuple[Offer, ...]:
    """Return the offers now; a former one that was not found again stays, unhealthy and with the reason.

    The kubelet shows a unit that leaves the list as unknown, an unhealthy one as what it is. A former unit goes when its
    resource is declared no more (declared: of resource and kind), or when its device is offered under another id or resource.
    """
    now = {key_of(offer): offer for offer in found.offers}
    taken = {(offer.kind, known) for offer in found.offers if not KINDS[offer.kind].one_place for known in (offer.name, offer.id)}
    kept = []
    for offer in former:
        key = key_of(offer)
        if key in now:
            kept.append(now.pop(key))
        elif declared(offer.resource, offer.kind) and not taken & {(offer.kind, offer.name), (offer.kind, offer.id)}:
            kept.append(replace(offer, present=(), trouble=KINDS[offer.kind].gone(root, offer), trouble_code=GONE, proofs=()))
    return (*kept, *now.values())


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
    """Return one line for each unit that came, went, or changed its health or its reason; one for all units of one node."""
    old = {key_of(offer): offer for offer in before}
    new = {key_of(offer): offer for offer in after}
    lines = [f"{offer.resource} {offer.id} ({offer.name}): gone" for key, offer in old.items() if key not in new]
    for key, offer in new.items():
        earlier = old.get(key)
        if earlier is None or (earlier.health, earlier.reason) != (offer.health, offer.reason):
            why = f": {offer.reason}" if offer.reason else ""
            unit = "all units" if KINDS[offer.kind].one_place else offer.id
            lines.append(f"{offer.resource} {unit} ({offer.name}): {offer.health}{why}")
    return list(dict.fromkeys(lines))

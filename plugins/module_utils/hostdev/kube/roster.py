"""The units of a node over time: what is offered now, and what was offered before and is not there any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Callable

from ..device.offer import GONE, Found, Offer
from ..root import Root
from .kinds import KINDS

Key = tuple[str, str]


def merge(root: Root, former: Sequence[Offer], found: Found, declared: Callable[[str, str], bool]) -> tuple[Offer, ...]:
    """Return the offers now; a former one that was not found again stays, unhealthy and with the reason.

    The kubelet shows a unit that leaves the list as unknown, an unhealthy one as what it is. A former unit goes when its
    resource is declared no more (declared: of resource and kind), or when its device is offered under another id.
    """
    now = {key_of(offer): offer for offer in found.offers}
    named = {(offer.resource, offer.name) for offer in found.offers if not KINDS[offer.kind].one_place}
    kept = []
    for offer in former:
        key = key_of(offer)
        if key in now:
            kept.append(now.pop(key))
        elif declared(offer.resource, offer.kind) and (offer.resource, offer.name) not in named:
            kept.append(replace(offer, present=(), trouble=KINDS[offer.kind].gone(root, offer), trouble_code=GONE, proofs=()))
    return (*kept, *now.values())


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

"""The device plugin's state file, in which others read what is served, what is not, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..device.inventory import Skipped, skipped_dict
from ..device.offer import Offer
from .answers import folder_of
from .kinds import KINDS

VERSION = 1


def offer_dict(offer: Offer, grants: str) -> dict[str, Any]:
    """Return one unit for the state file."""
    return {
        "kind": offer.kind,
        "resource": offer.resource,
        "id": offer.id,
        "name": offer.name,
        "values": list(offer.values),
        "companions": list(offer.companions),
        "numa_node": offer.numa_node,
        "health": offer.health,
        "reason": offer.reason,
        "nodes": list(offer.nodes),
        "grant": folder_of(offer, grants),
    }


def units_of(offers: Sequence[Offer], grants: str) -> list[dict[str, Any]]:
    """Return every unit; of a node that is offered many times the first alone, with how many there are."""
    listed: dict[tuple[str, str], Offer] = {}
    counts: dict[tuple[str, str], int] = {}
    for offer in offers:
        key = (offer.resource, offer.name if KINDS[offer.kind].one_place else offer.id)
        listed.setdefault(key, offer)
        counts[key] = counts.get(key, 0) + 1
    return [{**offer_dict(offer, grants), "count": counts[key]} for key, offer in listed.items()]


def state_text(offers: Sequence[Offer], skipped: Sequence[Skipped], served: Sequence[dict[str, Any]], grants: str, **more: Any) -> str:
    """Return the state file: {"version": 1, "resources": [...], "units": [...], "skipped": [...]} and what more there is."""
    state = {
        "version": VERSION,
        "resources": list(served),
        "units": units_of(offers, grants),
        "skipped": [skipped_dict(one) for one in skipped],
        **more,
    }
    return json.dumps(state, indent=1) + "\n"

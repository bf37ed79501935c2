"""The device plugin's state file, in which others read what is served, what is not, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..device.inventory import Skipped, skipped_dict
from ..device.offer import Offer
from .answers import folder_of
from .kinds import KINDS
from .past import Past
from .roster import Key, key_of

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
        "members": list(offer.members),
        "numa_node": offer.numa_node,
        "health": offer.health,
        "reason": offer.reason,
        "code": offer.code,
        "nodes": list(offer.nodes),
        "grant": folder_of(offer, grants),
    }


def units_of(offers: Sequence[Offer], grants: str, since: Mapping[Key, str]) -> list[dict[str, Any]]:
    """Return every unit; of a node that is offered many times the first alone, with how many there are.

    since: by unit, when its health or its reason came; empty where nobody remembers.
    """
    listed: dict[tuple[str, str], Offer] = {}
    counts: dict[tuple[str, str], int] = {}
    for offer in offers:
        key = (offer.resource, offer.name if KINDS[offer.kind].one_place else offer.id)
        listed.setdefault(key, offer)
        counts[key] = counts.get(key, 0) + 1
    return [{**offer_dict(offer, grants), "count": counts[key], "since": since.get(key_of(offer), "")} for key, offer in listed.items()]


def state_text(offers: Sequence[Offer], skipped: Sequence[Skipped], served: Sequence[dict[str, Any]], grants: str, past: Past) -> str:
    """Return the state file: {"version": 1, "resources": [...], "units": [...], "skipped": [...], "renumbered": [...]}."""
    state = {
        "version": VERSION,
        "resources": list(served),
        "units": units_of(offers, grants, past.since),
        "skipped": [skipped_dict(one) for one in skipped],
        "renumbered": [one.as_dict() for one in past.renumbered],
    }
    return json.dumps(state, indent=1) + "\n"

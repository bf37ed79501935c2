"""The device plugin's state file, in which others read what is served, what is not, and why."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..device.faults import Fault
from ..device.inventory import Skipped, skipped_dict
from ..device.offer import Offer
from ..root import remove_file, write_file
from .answers import folder_of
from .kinds import KINDS
from .past import Past
from .roster import Key, by_resource, key_of

log = logging.getLogger(__name__)

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
    listed: list[tuple[Offer, int]] = []
    for units in by_resource(offers).values():
        named = attrgetter("name" if KINDS[units[0].kind].one_place else "id")
        counts = Counter(map(named, units))
        first = dict(zip(map(named, reversed(units)), reversed(units)))
        listed += [(first[name], count) for name, count in counts.items()]
    return [{**offer_dict(offer, grants), "count": count, "since": since.get(key_of(offer), "")} for offer, count in listed]


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


class StateFile:
    """The file on the disk. It serves others alone: that it cannot be written is told once, and tried again at every look."""

    def __init__(self, path: Path) -> None:
        """Write nothing yet."""
        self._path = path
        self._written = ""
        self._said = ""

    def put(self, text: str) -> None:
        """Have the file hold the text."""
        if text == self._written:
            return
        try:
            write_file(self._path, text)
        except (Fault, OSError) as error:
            if str(error) != self._said:
                log.warning("%s; what is served goes on, and others read an old state", error)
            self._said = str(error)
            return
        if self._said:
            log.info("%s is written again", self._path)
        self._written, self._said = text, ""

    def remove(self) -> None:
        """Remove the file, as far as that can be done, and what a killed service had begun to write in its folder."""
        self._written = ""
        with suppress(OSError):
            for begun in self._path.parent.glob(".*.json.*"):
                begun.unlink()
            remove_file(self._path)

"""Allocate: what was listed is looked at again before it is handed out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from ..device.faults import Refused
from ..device.offer import LINE, LINK, NAMES, Offer
from ..root import Root, read_text
from . import answers

log = logging.getLogger(__name__)
_WHAT = "hand out a device"


def _link(place: str, expected: str) -> str:
    try:
        found = os.readlink(place).rpartition("/")[2]
    except OSError:
        found = ""
    return "" if found == expected else f"is {found or 'none'}, it was {expected or 'none'}"


def _line(place: str, expected: str) -> str:
    text = read_text(place)
    return "" if text is not None and expected in text.splitlines() else f"has no line {expected}"


def _names(place: str, expected: str) -> str:
    try:
        found = " ".join(sorted(os.listdir(place)))
    except OSError:
        found = ""
    return "" if found == expected else f"holds {found or 'nothing'}, it held {expected}"


_FORMS: dict[str, Callable[[str, str], str]] = {LINK: _link, LINE: _line, NAMES: _names}


def disproved(root: Root, offer: Offer) -> str:
    """Return which fact of an offer does not hold any more, as text; empty when all do."""
    base = str(root.base).rstrip("/")
    for path, expected, form in offer.proofs:
        difference = _FORMS[form](base + path, expected)
        if difference:
            return f"{path} {difference} when the unit was listed"
    gone = [node for node in offer.nodes if not os.path.exists(base + node)]
    return f"{gone[0]} does not exist any more" if gone else ""


class Allocator:
    """Answers Allocate for one resource.

    offers: gives the units as last seen. look: looks at the machine anew and gives the units as they are now; called only
    when what was seen does not hold any more, so that an ordinary call costs a few reads.
    """

    def __init__(
        self,
        root: Root,
        resource: str,
        offers: Callable[[], Mapping[str, Offer]],
        look: Callable[[], Mapping[str, Offer]],
        answer: Callable[[Sequence[str], Mapping[str, Offer]], dict[str, Any]],
    ) -> None:
        self._root = root
        self._resource = resource
        self._offers = offers
        self._look = look
        self._answer = answer

    def __call__(self, requests: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Return one answer per container request; a Fault names the first unit that cannot be handed out, and why."""
        offers = self._checked(requests, self._offers())
        if offers is None:
            offers = self._checked(requests, self._look(), last=True) or {}
        made = [self._answer(ids, offers) for ids in requests]
        log.info("%s: allocated %s", self._resource, " ".join(",".join(ids) for ids in requests))
        return made

    def _checked(
        self, requests: Sequence[Sequence[str]], offers: Mapping[str, Offer], *, last: bool = False
    ) -> Optional[Mapping[str, Offer]]:
        for one in dict.fromkeys(one for ids in requests for one in ids):
            if not last and (one not in offers or offers[one].reason):
                return None
            offer = answers.usable(self._resource, one, offers)
            cause = disproved(self._root, offer)
            if cause and last:
                raise Refused(
                    what=_WHAT,
                    subject=f"{self._resource} {one} ({offer.name})",
                    cause=cause,
                    hint="try again, or look at `hostdev devices`",
                )
            if cause:
                return None
        return offers

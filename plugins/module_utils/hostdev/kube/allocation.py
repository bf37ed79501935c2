"""Allocate: what was listed is looked at again before it is handed out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Generic, Optional, TypeVar

from ..device.faults import Fault, Refused
from ..device.offer import Offer
from ..kernel.proofs import disproved
from ..root import Root
from . import answers
from .kinds import KINDS
from .metrics import Counts
from .wire import device_plugin

log = logging.getLogger(__name__)
_WHAT = "hand out a device"
# more than there are units; several units at once come in many combinations
_KEPT = 1024

Answer = TypeVar("Answer")


class Ready:
    """Answers to container requests as bytes, each an AllocateResponse of its own; joined they are one of all of them.

    Kept by the units that they name, so that a unit that is seen to be another one than before gets a new answer.
    """

    def __init__(self, answer: Callable[[Sequence[str], Mapping[str, Offer]], dict[str, Any]]) -> None:
        self._answer = answer
        self._encode = device_plugin().encode
        self._kept: dict[tuple[Offer, ...], bytes] = {}

    def __call__(self, ids: Sequence[str], offers: Mapping[str, Offer]) -> bytes:
        """Return the answer for ids in request order."""
        chosen = tuple(offers[one] for one in ids)
        made = self._kept.get(chosen)
        if made is None:
            made = self._encode("AllocateResponse", container_responses=[self._answer(ids, offers)])
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[chosen] = made
        return made


class Allocator(Generic[Answer]):
    """Answers Allocate for one resource.

    offers: gives the units as last seen. look: looks at the machine anew and gives the units as they are now; called only
    when what was seen does not hold any more, so that an ordinary call costs a few reads. counts: what is kept of the outcomes.
    """

    def __init__(
        self,
        root: Root,
        resource: str,
        offers: Callable[[], Mapping[str, Offer]],
        look: Callable[[], Mapping[str, Offer]],
        answer: Callable[[Sequence[str], Mapping[str, Offer]], Answer],
        counts: Optional[Counts] = None,
    ) -> None:
        self._root = root
        self._resource = resource
        self._offers = offers
        self._look = look
        self._answer = answer
        self._counts: Counts = Counter() if counts is None else counts

    def __call__(self, requests: Sequence[Sequence[str]]) -> list[Answer]:
        """Return one answer per container request; a Fault names the first unit that cannot be handed out, and why."""
        try:
            made = self._made(requests)
        except Fault as fault:
            self._counts[self._resource, fault.as_dict()["kind"]] += 1
            raise
        self._counts[self._resource, "allocated"] += 1
        return made

    def _made(self, requests: Sequence[Sequence[str]]) -> list[Answer]:
        offers = self._checked(requests, self._offers())
        if offers is None:
            offers = self._checked(requests, self._look(), last=True) or {}
        made = [self._answer(ids, offers) for ids in requests]
        # a line each would cost more than making the answer; how many there were is counted, and the kubelet tells who holds what
        log.debug("%s: allocated %s", self._resource, requests)
        return made

    def _checked(
        self, requests: Sequence[Sequence[str]], offers: Mapping[str, Offer], *, last: bool = False
    ) -> Optional[Mapping[str, Offer]]:
        for one in dict.fromkeys(one for ids in requests for one in ids):
            if not last and (one not in offers or offers[one].reason):
                return None
            offer = answers.usable(self._resource, one, offers)
            silent = KINDS[offer.kind].silent
            cause = disproved(self._root, offer) or (silent(self._root, offer) if silent else "")
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

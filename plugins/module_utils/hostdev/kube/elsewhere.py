"""Devices that containers hold under another resource: a device is never offered twice, whatever it is called (decision 16).

The kubelet counts what is held by resource and id, so that a device under a new name is free to it. Its store of Allocate's
answers tells what devices containers have, yet keeps those of ended pods until it is asked again (its device manager's
UpdateAllocatedDevices); who holds what now it says by podresources, which makes it look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

from ..device.offer import Offer
from .checkpoint import FILE as STORE
from .checkpoint import Stored, read_stored
from .config import Stamp, stamp_of
from .ledger import Ledger

log = logging.getLogger(__name__)

HELD_ELSEWHERE = "held-elsewhere"
ASK_SECONDS = 10.0


class Elsewhere:
    """What containers hold. Where the kubelet cannot be asked, its store counts."""

    def __init__(
        self,
        plugin_folder: Path,
        woken: Callable[[], None],
        ask: Callable[[], Ledger],
    ) -> None:
        """Know of nothing yet. woken: called, in another thread, when the kubelet said something new. ask: gives its word."""
        self._plugin_folder, self._woken, self._ask = plugin_folder, woken, ask
        self._stamp: Optional[Stamp] = None
        self._given: Mapping[str, tuple[Stored, ...]] = {}
        self._asked: tuple[frozenset[Stored], float] = (frozenset(), 0.0)
        self._ended: frozenset[Stored] = frozenset()
        self._asking: Optional[threading.Thread] = None
        self._said = ""

    def shown(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """Return the units; one whose device a container has under another resource is unhealthy."""
        self._read()
        if not self._given:
            return offers
        return tuple(map(self._shown, offers))

    def ask(self, offers: Iterable[Offer], now: float) -> Optional[float]:
        """Have the kubelet asked, at the monotonic time now, whether what keeps units from use is held still.

        Returns the seconds until to ask again, None when nothing is kept from use.
        """
        held = frozenset(one for offer in offers for one in self._others(offer)) if self._given else frozenset()
        if not held:
            self._asked, self._ended = (held, 0.0), frozenset()
            return None
        asked, due = self._asked
        if (held != asked or now >= due) and self._asking is None:
            self._asked = (held, now + ASK_SECONDS)
            # it may take its time, and nothing else waits for it
            self._asking = threading.Thread(target=self._answered, args=(held,), name="held-elsewhere", daemon=True)
            self._asking.start()
        # of a pod that has ended the store may tell for long, and nothing waits for it any more
        return None if held <= self._ended else max(self._asked[1] - now, 0.0) or ASK_SECONDS

    def _read(self) -> None:
        stamp = stamp_of(self._plugin_folder / STORE)
        if stamp == self._stamp:
            return
        given: dict[str, tuple[Stored, ...]] = {}
        for one in read_stored(self._plugin_folder) or ():
            for value in one.values:
                given[value] = (*given.get(value, ()), one)
        self._stamp, self._given = stamp, given

    def _others(self, offer: Offer) -> list[Stored]:
        return [one for value in offer.values for one in self._given.get(value, ()) if one.resource != offer.resource]

    def _shown(self, offer: Offer) -> Offer:
        holder = next((one for one in self._others(offer) if one not in self._ended), None) if not offer.trouble else None
        if holder is None:
            return offer
        return replace(offer, trouble=f"held as {holder.resource} by a pod until that pod ends", trouble_code=HELD_ELSEWHERE)

    def _answered(self, held: frozenset[Stored]) -> None:
        try:
            holdings = {(one.resource, one.id) for one in self._ask().holdings}
            ended = frozenset(one for one in held if not any((one.resource, number) in holdings for number in one.ids))
            self._said = ""
        # libraries raise what they like, and a thread that ends here would ask never again
        except Exception as fault:  # noqa: BLE001
            ended = frozenset()
            if str(fault) != self._said:
                log.warning("%s; what the kubelet's store says is held counts as held", fault)
            self._said = str(fault)
        changed, self._ended, self._asking = ended != self._ended, ended, None
        if changed:
            self._woken()

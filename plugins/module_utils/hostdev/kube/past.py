"""What the service remembers of the time before: since when a unit is as it is, and what the kubelet stored of its ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

from ..device.offer import Offer
from .checkpoint import Renumbered, read_stored, renumbered
from .roster import Key, key_of

log = logging.getLogger(__name__)


class Past:
    """renumbered: stored answers that mean other devices than their ids do now. since: by unit, when its health or reason came."""

    def __init__(self, plugin_folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._plugin_folder = plugin_folder
        self._clock = clock
        self._reasons: dict[Key, tuple[str, str]] = {}
        self._since: dict[Key, str] = {}
        self.renumbered: tuple[Renumbered, ...] = ()

    @property
    def since(self) -> Mapping[Key, str]:
        """Return by unit the time, UTC as "2026-11-30T14:03:10Z"."""
        return self._since

    def take(self, offers: Sequence[Offer], changed: bool) -> None:
        """Take over the offers as they are now; each renumbered answer is told in the log once.

        changed: whether any unit came, went or changed, without which no id can mean another device than before.
        """
        if changed:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
            former = self._reasons
            self._reasons = {}
            for offer in offers:
                reason, when = former.get(key_of(offer), (None, now))
                self._reasons[key_of(offer)] = (offer.reason, when if reason == offer.reason else now)
            self._since = {key: when for key, (_reason, when) in self._reasons.items()}
        # a stored answer goes with its pod, and nobody tells us
        if changed or self.renumbered:
            found = renumbered(read_stored(self._plugin_folder) or (), offers)
            for one in found:
                if one not in self.renumbered:
                    log.warning("%s", one.text())
            self.renumbered = found

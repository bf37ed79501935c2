"""Why declared devices are not offered: found by a look at the whole machine, which waits until the kubelet has its list."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Callable, Optional

from ..device.faults import Fault
from ..device.inventory import Skipped

log = logging.getLogger(__name__)

_LATER = 1.0
# of a kubelet that is not there
_LONGEST = 10.0


class Reasons:
    """The devices that are skipped, as last found; `find` looks when that was asked for and is due."""

    def __init__(
        self, look: Callable[[], tuple[Skipped, ...]], units: Callable[[], Collection[tuple[str, str]]] = frozenset[tuple[str, str]]
    ) -> None:
        """Begin with a look that is due. units: resource and name of each unit, which tells by itself why it is unhealthy."""
        self.skipped: tuple[Skipped, ...] = ()
        self._look, self._units = look, units
        self._asked: Optional[float] = 0.0
        self._due = 0.0

    def ask(self, now: float, later: float = _LATER) -> None:
        """Ask for a look so many seconds after the monotonic time now; what is asked for already is not put off."""
        if self._asked is None:
            self._asked, self._due = now, now + later
        self._due = min(self._due, now + later)

    def find(self, now: float, *, registered: bool) -> Optional[float]:
        """Look if that is due; return the seconds until it is, None when nothing is asked for.

        registered: whether the kubelet has every list; until it has, a look waits, though not for ever.
        """
        if self._asked is None:
            return None
        due = self._due if registered else max(self._due, self._asked + _LONGEST)
        if now < due:
            return due - now
        self._asked = None
        before = dict.fromkeys(self.skipped)
        try:
            self.skipped = self._look()
        except (Fault, OSError) as fault:
            log.error("%s; the last reasons stay", fault)  # noqa: TRY400
        units = self._units()
        for one in self.skipped:
            if one not in before and (one.resource, str(one.address)) not in units:
                log.info("%s (%s): not offered: %s", one.address, one.resource, one.detail)
        return None

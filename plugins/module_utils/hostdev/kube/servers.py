"""Every served resource with its list, its server and its registration, kept true to what is declared and offered."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from ..device.handover import handover_path
from ..device.offer import Offer
from ..root import Root
from . import answers
from .allocation import Allocator, Ready
from .iommufd import HandOver
from .kinds import KINDS, Kind
from .metrics import Tally
from .options import PluginOptions
from .plugin import Server, Shelf
from .registration import Registrar
from .roster import by_resource, same

log = logging.getLogger(__name__)


@dataclass
class _Served:
    """One resource. kind: that of its units, by which its server is made. listed: the units that the shelf has."""

    kind: str
    shelf: Shelf
    registrar: Registrar
    listed: Optional[Sequence[Offer]] = None


class Servers:
    """All resources that are served."""

    def __init__(
        self,
        root: Root,
        options: PluginOptions,
        handover: HandOver,
        tally: Tally,
        look: Callable[[], tuple[Offer, ...]],
        woken: Callable[[], None],
    ) -> None:
        """Serve nothing yet. look: looks at the machine anew, for an Allocate call. woken: called when the service should look."""
        self._root, self._options, self._handover, self._tally = root, options, handover, tally
        self._look, self._woken = look, woken
        self._served: dict[str, _Served] = {}

    def compose(self, wanted: Mapping[str, str], offers: Sequence[Offer]) -> None:
        """Serve these resources, given with their kinds, and no others; each lists its units among the offers."""
        for resource in [name for name, one in self._served.items() if wanted.get(name) != one.kind]:
            log.info("%s: no longer served", resource if resource not in wanted else f"{resource} as {self._served[resource].kind}")
            one = self._served.pop(resource)
            # an empty list first: the kubelet keeps the last list of a stream that merely ends
            one.shelf.put([])
            one.registrar.stop()
        units = by_resource(offers)
        for resource, kind in wanted.items():
            one = self._served.get(resource) or self._begun(resource, kind)
            mine = units.get(resource, ())
            if one.listed is None or not same(one.listed, mine):
                one.shelf.put(mine)
                one.listed = mine

    def step(self, now: float) -> list[Optional[float]]:
        """Do what is due at the monotonic time now; return for each the seconds until the next time, None without one."""
        return [one.registrar.step(now) for one in self._served.values()]

    def registered(self) -> dict[str, bool]:
        """Return by resource whether the kubelet watches its list."""
        return {resource: one.registrar.registered for resource, one in list(self._served.items())}

    def told(self) -> list[dict[str, Any]]:
        """Return each resource for the state file: its socket, and whether the kubelet watches its list, or why not."""
        registrars = [one.registrar for one in self._served.values()]
        return [
            {"resource": one.resource, "socket": one.socket, "registered": one.registered, "cause": "" if one.registered else one.cause}
            for one in registrars
        ]

    def stop(self) -> None:
        """End all servers and remove their sockets."""
        for one in self._served.values():
            one.registrar.stop()
        self._served.clear()

    def _begun(self, resource: str, kind: str) -> _Served:
        shelf = Shelf()
        registrar = Registrar(resource, self._options.kubelet, partial(self._server, resource, shelf, KINDS[kind]))
        made = self._served[resource] = _Served(kind, shelf, registrar)
        return made

    def _server(self, resource: str, shelf: Shelf, kind: Kind) -> Server:
        grants, prefix = self._options.grants, self._options.host_prefix

        def look() -> dict[str, Offer]:
            self._woken()
            # with what is not there any more: whoever asks for it is told why
            return {offer.id: offer for offer in self._look() if offer.resource == resource}

        ready = Ready(lambda ids, offers: answers.container_answer(resource, ids, offers, grants, prefix))

        def prepare(ids: Sequence[str]) -> None:
            if ids:
                self._handover.prepare(handover_path(resource, ids, grants))

        def prepared(ids: Sequence[str], offers: Mapping[str, Offer]) -> bytes:
            prepare(ids)
            return ready(ids, offers)

        answer, each = (prepared, prepare) if kind.handover else (ready, None)
        allocator = Allocator(self._root, resource, shelf.offers, look, answer, self._tally.allocations)
        folder = Path(self._options.plugin_folder)
        return Server(resource, folder, shelf, allocator, self._woken, prefer=kind.prefers, prepare=each)

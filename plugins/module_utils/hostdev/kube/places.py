"""The grant folders of what is offered and of what containers hold: made before anything is offered that mounts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from ..device.offer import NO_GRANT, Offer
from ..root import Root
from .answers import folder_of
from .checkpoint import FILE as STORE
from .config import Stamp, stamp_of
from .grant import GrantServer, Place
from .held import held_places
from .kinds import KINDS
from .roster import by_resource, same


class Places:
    """The grant server's places. counts: its answers since the start, by resource and outcome."""

    def __init__(self, root: Root, plugin_folder: Path, grants: str) -> None:
        """Serve nothing yet. grants: the folder of all grant folders."""
        self._plugin_folder = plugin_folder
        self._grants = grants
        self._server = GrantServer(root)
        self._made: dict[str, tuple[Sequence[Offer], list[Place]]] = {}
        self._held: tuple[Optional[Stamp], Optional[list[Place]]] = (None, None)
        self.counts = self._server.counts

    def granted(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """Make the units' grant folders; a unit whose folder cannot be made is unhealthy."""
        places = [place for resource, units in by_resource(offers).items() for place in self._places(resource, units)]
        failed = self._server.serve(places, self._stored())
        if not failed:
            return offers

        def troubled(offer: Offer) -> Offer:
            cause = failed.get(folder_of(offer, self._grants))
            return replace(offer, trouble=cause, trouble_code=NO_GRANT) if cause else offer

        return tuple(map(troubled, offers))

    def stop(self) -> None:
        """End the grant server; folders stay for the containers that have them."""
        self._server.stop()

    def _places(self, resource: str, units: Sequence[Offer]) -> list[Place]:
        former, made = self._made.get(resource, ((), []))
        if not same(former, units):
            # the units of a node share one folder
            made = list({place.folder: place for place in map(self._place, units)}.values())
            self._made[resource] = units, made
        return made

    def _place(self, offer: Offer) -> Place:
        kind = KINDS[offer.kind]
        unit = offer.name if kind.one_place else offer.id
        return Place(offer.resource, unit, folder_of(offer, self._grants), offer.required, offer.optional, kind.vfio)

    def _stored(self) -> Optional[list[Place]]:
        """Return the places that the kubelet's stored answers mount, whatever has become of the units."""
        stamp = stamp_of(self._plugin_folder / STORE)
        if stamp != self._held[0]:
            self._held = (stamp, held_places(self._plugin_folder, self._grants))
        return self._held[1]

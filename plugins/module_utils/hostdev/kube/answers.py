"""What the device plugin answers, as plain values: which devices there are, and what a container gets with them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Callable

from ..device.declaration import NODE
from ..device.faults import Absent, Fault, Refused
from ..device.grant import place_folder
from ..device.handover import IN_CONTAINER, handover_path
from ..device.inventory import HEALTHY
from ..device.names import COMPANIONS, variable
from ..device.offer import Offer
from .kinds import KINDS

_WHAT = "hand out a device"
_SITE = "run `hostdev devices` on the node for the state of each device"
_LONGEST = 300


def device(offer: Offer) -> dict[str, Any]:
    """Return a v1beta1.Device; without a NUMA node there is no topology, since node 0 would pin and -1 is no node."""
    made: dict[str, Any] = {"ID": offer.id, "health": offer.health}
    if offer.numa_node is not None:
        made["topology"] = {"nodes": [{"ID": offer.numa_node}]}
    return made


def folder_of(offer: Offer, grants: str) -> str:
    """Return the unit's grant folder below the folder of all grants."""
    return place_folder(offer.resource, offer.id, grants, shared=KINDS[offer.kind].one_place)


def container_answer(resource: str, ids: Sequence[str], offers: Mapping[str, Offer], grants: str, prefix: str = "") -> dict[str, Any]:
    """Return a v1beta1.ContainerAllocateResponse for ids in request order, for one container.

    offers: the resource's units by id. grants: folder of all grant folders. prefix: what the container runtime has to
    put before a device node's path to find it. Absent for an unknown id, Refused for a unit that cannot be given away.
    """
    chosen = [usable(resource, one, offers) for one in ids]
    nodes = {node: offer.permissions for offer in chosen for node in _nodes(offer)}
    # read-only is enough to connect, and keeps a container from planting anything where the service makes sockets
    folders = dict.fromkeys(folder_of(offer, grants) for offer in chosen)
    mounts = [{"container_path": folder, "host_path": folder, "read_only": True} for folder in folders]
    if any(KINDS[offer.kind].handover for offer in chosen):
        mounts.append({"container_path": IN_CONTAINER, "host_path": handover_path(resource, ids, grants), "read_only": False})
    return {
        "envs": variables(resource, chosen, next((offer.kind for offer in offers.values()), NODE)),
        "mounts": mounts,
        "devices": [{"container_path": node, "host_path": f"{prefix}{node}", "permissions": nodes[node]} for node in nodes],
    }


def _nodes(offer: Offer) -> tuple[str, ...]:
    """Return the nodes of a container that has the unit: a runtime starts none for which the host lacks one."""
    return (*(node for node in KINDS[offer.kind].control if node in offer.present), *offer.nodes)


def allocate(
    resource: str, requests: Sequence[Sequence[str]], offers: Mapping[str, Offer], grants: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return one response per container request, each with its own devices only (KubeVirt shares one between all)."""
    return [container_answer(resource, ids, offers, grants, prefix) for ids in requests]


def prefer(available: Sequence[str], included: Sequence[str], size: int, offers: Mapping[str, Offer]) -> list[str]:
    """Return the ids to allocate: those that must be included, then whole cards, one NUMA node, one PCIe root, the smallest
    set that suffices, lower ids.

    Answers with fewer ids than asked for when there are fewer; the kubelet fills up by itself.
    """
    chosen = list(dict.fromkeys(included))[:size]
    rest = [one for one in dict.fromkeys(available) if one not in chosen and one in offers]
    while rest and len(chosen) < size:
        held = [offers[other] for other in chosen if other in offers]
        places = [Counter(place(offers[one]) for one in rest) for place in _PLACES]
        needed = size - len(chosen)
        best = min(rest, key=lambda one: _rank(offers[one], held, places, needed))
        rest.remove(best)
        chosen.append(best)
    return chosen


# where units are neighbours, from the widest to the narrowest: NUMA node, PCIe root, card
_PLACES: tuple[Callable[[Offer], Hashable], ...] = (lambda one: one.numa_node, lambda one: one.upstream[:2], lambda one: one.card)


def _rank(mine: Offer, held: Sequence[Offer], places: Sequence[Mapping[Hashable, int]], needed: int) -> tuple[Any, ...]:
    there = [counted[place(mine)] for place, counted in zip(_PLACES, places)]
    return (
        all(other.card != mine.card for other in held),
        bool(held) and all(other.numa_node != mine.numa_node for other in held),
        -max((_shared(mine, other) for other in held), default=0),
        # a place that has enough beats one that has not; among those that have, the smallest
        *(part for count in there for part in (count < needed, count if count >= needed else -count)),
        mine.name,
    )


def _shared(one: Offer, other: Offer) -> int:
    """Return how many buses and bridges two units have above them in common."""
    pairs = zip(one.upstream[:-1], other.upstream[:-1])
    return next((depth for depth, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(one.upstream), len(other.upstream)) - 1)


def usable(resource: str, one: str, offers: Mapping[str, Offer]) -> Offer:
    """Return the unit of an id; Absent for an unknown id, Refused with the reason for a unit that is unhealthy."""
    offer = offers.get(one)
    if offer is None:
        known = ", ".join(sorted(offers)[:8]) or "none"
        raise Absent(what=_WHAT, subject=f"{resource} {one}", cause=f"no unit of this node has the id {one} now (ids: {known})", hint=_SITE)
    if offer.health != HEALTHY:
        raise Refused(what=_WHAT, subject=f"{resource} {one} ({offer.name})", cause=offer.reason, hint=_SITE)
    return offer


def variables(resource: str, chosen: Sequence[Offer], kind: str) -> dict[str, str]:
    """Return the variables that name the chosen units: KubeVirt's, empty for no unit, and ours for companions.

    kind: of the resource's units; a resource has one.
    """
    prefix = KINDS[kind].prefix
    values = {variable(prefix, resource): ",".join(value for offer in chosen for value in offer.values)} if prefix else {}
    attached = [f"{offer.values[0]}={'+'.join(offer.companions)}" for offer in chosen if offer.companions]
    if attached:
        values[variable(COMPANIONS, resource)] = ",".join(attached)
    return values


def short(fault: Fault) -> str:
    """Return a fault's text cut to 300 characters: it ends in the pod's status message and events."""
    text = fault.text()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

"""What the device plugin answers, as plain values: which devices there are, and what a container gets with them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..device.faults import Absent, Fault, Refused
from ..device.grant import unit_folder
from ..device.inventory import HEALTHY, UNHEALTHY, Unit
from ..device.names import COMPANIONS, PREFIXES, variable

VFIO = "/dev/vfio/vfio"
CONTROL_GROUP = "/dev/vfio"
CDEVS = "/dev/vfio/devices"
IOMMU = "/dev/iommu"
_WHAT = "hand out a device"
_SITE = "run `hostdev devices` on the node for the state of each device"


@dataclass(frozen=True)
class Offer:
    """A unit as this node can hand it out now.

    nodes: its device nodes that exist, group nodes first, as paths of the host. missing: those that should and do not.
    """

    unit: Unit
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def health(self) -> str:
        """Return "Healthy" only when group and nodes are."""
        return UNHEALTHY if self.missing else self.unit.health

    @property
    def reason(self) -> str:
        """Return why the unit is unhealthy; empty when it is healthy."""
        if self.unit.blockers:
            held = ", ".join(f"{one.address} {one.driver}" for one in self.unit.blockers)
            return f"IOMMU group {self.unit.group} is not viable: held by drivers of the host: {held}"
        return f"{', '.join(self.missing)} does not exist" if self.missing else ""


def group_nodes(unit: Unit) -> tuple[str, ...]:
    """Return the group nodes that the unit needs."""
    return tuple(f"{CONTROL_GROUP}/{group}" for group in unit.groups)


def cdev_nodes(unit: Unit) -> tuple[str, ...]:
    """Return the per-device nodes that sysfs promises; kernels without CONFIG_VFIO_DEVICE_CDEV never make them (kubevirt 18895)."""
    functions = (unit.primary, *unit.guest_companions)
    return tuple(f"{CDEVS}/{name}" for function in functions for name in function.vfio_nodes or ())


def device(offer: Offer) -> dict[str, Any]:
    """Return a v1beta1.Device; without a NUMA node there is no topology, since node 0 would pin and -1 is no node."""
    made: dict[str, Any] = {"ID": offer.unit.group, "health": offer.health}
    if offer.unit.numa_node is not None:
        made["topology"] = {"nodes": [{"ID": offer.unit.numa_node}]}
    return made


def container_answer(resource: str, ids: Sequence[str], offers: Mapping[str, Offer], grants: str, prefix: str = "") -> dict[str, Any]:
    """Return a v1beta1.ContainerAllocateResponse for ids in request order, for one container.

    offers: the resource's units by id. grants: folder of all grant folders. prefix: what the container runtime has to
    put before a device node's path to find it. Absent for an unknown id, Refused for a unit that cannot be given away.
    """
    chosen = [_usable(resource, one, offers) for one in ids]
    nodes = dict.fromkeys([VFIO] if chosen else [])
    nodes.update(dict.fromkeys(node for offer in chosen for node in offer.nodes))
    # read-only is enough to connect, and keeps a container from planting anything where the service makes sockets
    folders = [unit_folder(resource, offer.unit.group, grants) for offer in chosen]
    return {
        "envs": _variables(resource, chosen),
        "mounts": [{"container_path": folder, "host_path": folder, "read_only": True} for folder in folders],
        "devices": [{"container_path": node, "host_path": f"{prefix}{node}", "permissions": "mrw"} for node in nodes],
    }


def allocate(
    resource: str, requests: Sequence[Sequence[str]], offers: Mapping[str, Offer], grants: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return one response per container request, each with its own devices only (KubeVirt shares one between all)."""
    return [container_answer(resource, ids, offers, grants, prefix) for ids in requests]


def prefer(available: Sequence[str], included: Sequence[str], size: int, offers: Mapping[str, Offer]) -> list[str]:
    """Return the ids to allocate: those that must be included, then whole cards, one NUMA node, the smallest set, lower ids.

    Answers with fewer ids than asked for when there are fewer; the kubelet fills up by itself.
    """
    chosen = list(dict.fromkeys(included))[:size]
    rest = [one for one in dict.fromkeys(available) if one not in chosen and one in offers]
    while rest and len(chosen) < size:
        best = min(rest, key=lambda one: _rank(one, chosen, rest, size - len(chosen), offers))
        rest.remove(best)
        chosen.append(best)
    return chosen


def _rank(one: str, chosen: Sequence[str], rest: Sequence[str], needed: int, offers: Mapping[str, Offer]) -> tuple[Any, ...]:
    card, node = _card(offers[one]), offers[one].unit.numa_node
    held = [offers[other] for other in chosen if other in offers]
    siblings = sum(_card(offers[other]) == card for other in rest)
    neighbours = sum(offers[other].unit.numa_node == node for other in rest)
    return (
        card not in {_card(offer) for offer in held},
        bool(held) and node not in {offer.unit.numa_node for offer in held},
        # a place that has enough beats one that has not; among those that have, the smallest
        neighbours < needed,
        neighbours if neighbours >= needed else -neighbours,
        siblings < needed,
        siblings if siblings >= needed else -siblings,
        offers[one].unit.primary.address,
    )


def _card(offer: Offer) -> str:
    primary = offer.unit.primary
    return (primary.physfn or primary.address).slot_text


def _usable(resource: str, one: str, offers: Mapping[str, Offer]) -> Offer:
    offer = offers.get(one)
    if offer is None:
        known = ", ".join(sorted(offers)) or "none"
        raise Absent(what=_WHAT, subject=f"{resource} {one}", cause=f"no unit of this node has the id {one} now (ids: {known})", hint=_SITE)
    if offer.health != HEALTHY:
        raise Refused(what=_WHAT, subject=f"{resource} {one} ({offer.unit.primary.address})", cause=offer.reason, hint=_SITE)
    return offer


def _variables(resource: str, chosen: Sequence[Offer]) -> dict[str, str]:
    values = {variable(PREFIXES["pci"], resource): ",".join(str(offer.unit.primary.address) for offer in chosen)}
    attached = [
        f"{offer.unit.primary.address}={'+'.join(str(one.address) for one in offer.unit.guest_companions)}"
        for offer in chosen
        if offer.unit.guest_companions
    ]
    if attached:
        values[variable(COMPANIONS, resource)] = ",".join(attached)
    return values


def short(fault: Fault) -> str:
    """Return a fault's text cut to 300 characters: it ends in the pod's status message and events."""
    text = fault.text()
    return text if len(text) <= 300 else text[:299] + "…"

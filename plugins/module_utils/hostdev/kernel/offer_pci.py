"""PCI functions as offers: one for each IOMMU group, with its nodes as they exist (design decision 2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ..device.address import Address
from ..device.declaration import PCI, Declaration
from ..device.faults import Absent
from ..device.inventory import Holder, Skipped, Unit, unusable
from ..device.nodes import IOMMU, VFIO
from ..device.offer import LINE, NAMES, Found, Offer, Proof
from ..device.pci import Group
from ..root import Root
from .inventory import read_inventory, read_units
from .pci import DEVICES, GROUPS, VGPU, has_pci, read_function
from .proofs import changed
from .vfio import bound_functions, read_upstream

CONTROL_GROUP = "/dev/vfio"
CDEVS = "/dev/vfio/devices"
_CDEV = re.compile(r"vfio[0-9]+")


def find(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> Found:
    """Return the units; why other functions are none is `skipped`'s to say, which has to look at the whole machine.

    former: what the same declaration gave before. A unit whose facts all hold still is taken over without reading it anew.
    """
    bound = dict(bound_functions(root))
    kept = [offer for offer in former if offer.name in bound and not offer.trouble and _holds(root, offer)]
    known = {name for offer in kept for name in (*offer.members, *offer.companions)}
    rest = {name: driver for name, driver in bound.items() if name not in known}
    made = [offer_of(root, unit) for unit in read_units(root, declaration.of(PCI), rest, held=_held(kept)).units] if rest else []
    return Found((*kept, *made))


def skipped(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> tuple[Skipped, ...]:
    """Return the declared functions that are no healthy unit, each with its reason; former: what is offered."""
    if not has_pci(root):
        return ()
    return read_inventory(root, declaration.of(PCI), held=_held([offer for offer in former if not offer.trouble])).skipped


def _held(offers: Sequence[Offer]) -> Mapping[str, Holder]:
    """Return who has the groups of the units that are offered already, companions' groups included."""
    return {node.rpartition("/")[2]: Holder(offer.id, offer.resource) for offer in offers for node in offer.required}


def gone(root: Root, offer: Offer) -> str:
    """Return why a unit that was offered is none any more."""
    try:
        function = read_function(root, Address.parse(offer.name))
    except Absent:
        return f"{offer.name} has left the bus (unplugged, or its parent was reset)"
    reason = unusable(function)
    if reason:
        return f"{offer.name}: {reason[1]}"
    if function.iommu_group != offer.id:
        return f"{offer.name} is in IOMMU group {function.iommu_group} now"
    if function.holds_vgpu:
        return f"{offer.name} has the vGPU profile {function.vgpu_type} now"
    # bound again between the look and this one, or taken by another entry: the next look tells
    return f"{offer.name} has only just changed, or its IOMMU group {offer.id} serves another resource"


def silent(root: Root, offer: Offer) -> str:
    """Return which function of a unit does not answer on the bus, as text; empty when all do.

    What cannot be reached reads as all ones (a virtual function's ids do too, so more than those is read). Reading config space
    disturbs nobody, but it wakes a function from D3cold (drivers/pci/pci-sysfs.c, pci_read_config), as the guest would a moment
    later; therefore this is asked before a unit is handed out, and at no other time.
    """
    for address in (*offer.values, *offer.companions):
        head = _head(f"{root.prefix}{DEVICES}/{address}/config")
        if head and not head.strip(b"\xff"):
            return f"{address} does not answer (config space reads as FF): it did not survive a reset; power the node off and on"
    return ""


def _head(place: str) -> bytes:
    try:
        handle = os.open(place, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(handle, 16)
    except OSError:
        return b""
    finally:
        os.close(handle)


def offer_of(root: Root, unit: Unit) -> Offer:
    """Return a unit with its nodes: the groups', and those of each device, which older kernels never make (kubevirt 18895)."""
    groups = tuple(f"{CONTROL_GROUP}/{group}" for group in unit.groups)
    handed = (unit.primary, *unit.guest_companions)
    cdevs = tuple(f"{CDEVS}/{name}" for function in handed for name in function.vfio_nodes or () if _CDEV.fullmatch(name))
    return Offer(
        kind=PCI,
        resource=unit.resource,
        id=unit.group,
        name=str(unit.primary.address),
        values=(str(unit.primary.address),),
        companions=tuple(str(one.address) for one in unit.guest_companions),
        required=groups,
        optional=(*cdevs, IOMMU) if cdevs else (),
        present=_present(root, groups, cdevs),
        numa_node=unit.numa_node,
        card=(unit.primary.physfn or unit.primary.address).slot_text,
        upstream=read_upstream(root, unit.primary.address),
        members=tuple(str(one.address) for one in unit.members),
        trouble=unit.trouble,
        trouble_code=unit.trouble_code,
        proofs=tuple(_proofs(unit)),
    )


def _holds(root: Root, offer: Offer) -> bool:
    return bool(offer.proofs) and not changed(root, offer) and _present(root, offer.required, offer.optional[:-1]) == offer.present


def _present(root: Root, groups: Sequence[str], cdevs: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that exist, first the control node; that of address spaces is of use only beside a device's own node."""
    # not os.access: the device cgroup denies it to a service that may open no device, whether the node exists or not
    there = [node for node in (VFIO, *groups, *cdevs) if os.path.exists(root.prefix + node)]
    usable = any(node in there for node in cdevs) and os.path.exists(root.prefix + IOMMU)
    return (*there, IOMMU) if usable else tuple(there)


def _proofs(unit: Unit) -> Iterator[Proof]:
    """Yield what must not have changed when the unit is handed out: its groups, and the driver of every member that counts.

    Not the NUMA node, which nothing but a write of root's to `numa_node` changes: reading it at each look would cost a fifth more.
    """
    handed = (unit.primary, *unit.guest_companions)
    for function in handed:
        place = f"{DEVICES}/{function.address}"
        yield Proof(place + "/iommu_group", function.iommu_group)
        yield Proof(place + "/vfio-dev", " ".join(function.vfio_nodes or ()), NAMES)
        if function.holds_vgpu:
            yield Proof(place + VGPU, function.vgpu_type, LINE)
    counted = unit.endpoints
    addresses = [one.address for one in counted]
    for function in (*counted, *(one for one in handed if one.address not in addresses)):
        yield Proof(f"{DEVICES}/{function.address}/driver", function.driver)
    for group in (Group(unit.group, unit.members), *unit.others):
        yield Proof(f"{GROUPS}/{group.number}/devices", " ".join(sorted(str(one.address) for one in group.members)), NAMES)

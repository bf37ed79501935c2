"""PCI functions as offers: one for each IOMMU group, with its nodes as they exist (design decision 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..device.address import Address
from ..device.declaration import PCI, Declaration
from ..device.faults import Absent
from ..device.inventory import Skipped, Unit, unusable
from ..device.nodes import IOMMU
from ..device.offer import NAMES, Found, Offer, Proof
from ..device.pci import Function
from ..root import Root
from .inventory import read_inventory, read_units
from .pci import DEVICES, GROUPS, read_function
from .vfio import read_upstream

CONTROL_GROUP = "/dev/vfio"
CDEVS = "/dev/vfio/devices"


def find(root: Root, declaration: Declaration, _former: Sequence[Offer] = ()) -> Found:
    """Return the units; why other functions are none is `skipped`'s to say, which has to look at the whole machine."""
    return Found(tuple(offer_of(root, unit) for unit in read_units(root, declaration.of(PCI)).units))


def skipped(root: Root, declaration: Declaration) -> tuple[Skipped, ...]:
    """Return the declared functions that are no healthy unit, each with its reason."""
    return read_inventory(root, declaration.of(PCI)).skipped


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
    return f"IOMMU group {offer.id} serves another resource now"


def offer_of(root: Root, unit: Unit) -> Offer:
    """Return a unit with its nodes: the groups', and those of each device, which older kernels never make (kubevirt 18895)."""
    groups = tuple(f"{CONTROL_GROUP}/{group}" for group in unit.groups)
    handed = (unit.primary, *unit.guest_companions)
    cdevs = tuple(f"{CDEVS}/{name}" for function in handed for name in function.vfio_nodes or ())
    present = tuple(node for node in (*groups, *cdevs) if root.at(node).exists())
    # the devices' own nodes are of use only beside the node that makes address spaces for them
    iommu = (IOMMU,) if set(present) & set(cdevs) and root.at(IOMMU).exists() else ()
    return Offer(
        kind=PCI,
        resource=unit.resource,
        id=unit.group,
        name=str(unit.primary.address),
        values=(str(unit.primary.address),),
        companions=tuple(str(one.address) for one in unit.guest_companions),
        required=groups,
        optional=(*cdevs, *iommu),
        present=(*present, *iommu),
        numa_node=unit.numa_node,
        card=(unit.primary.physfn or unit.primary.address).slot_text,
        upstream=read_upstream(root, unit.primary.address),
        trouble=unit.trouble,
        proofs=tuple(_proofs(unit)),
    )


def _proofs(unit: Unit) -> Iterator[Proof]:
    """Yield what must not have changed when the unit is handed out: its group, and the driver of every member that counts."""
    for function in (unit.primary, *unit.guest_companions):
        yield Proof(_link(function, "iommu_group"), function.iommu_group)
    for member in unit.endpoints:
        yield Proof(_link(member, "driver"), member.driver)
    yield Proof(f"{GROUPS}/{unit.group}/devices", " ".join(str(one.address) for one in unit.members), NAMES)


def _link(function: Function, name: str) -> str:
    return f"{DEVICES}/{function.address}/{name}"

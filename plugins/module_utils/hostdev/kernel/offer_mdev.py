"""Mediated devices as offers: one for each uuid, known by its IOMMU group (contract C3)."""

from __future__ import annotations

from collections.abc import Sequence

from ..device.declaration import MDEV, Declaration, Entry
from ..device.inventory import NO_IOMMU_GROUP, Skipped, serves_another
from ..device.mdev import Mdev
from ..device.nodes import VFIO
from ..device.offer import Found, Offer, Proof
from ..root import Root
from .mdev import DEVICES, read_mdevs
from .offer_pci import CONTROL_GROUP


def find(root: Root, declaration: Declaration, _former: Sequence[Offer] = ()) -> Found:
    """Return the offers of every mediated device whose type is declared; one without a group is skipped."""
    entries = declaration.of(MDEV).served
    offers, skipped = [], []
    taken: dict[str, Entry] = {}
    mdevs = read_mdevs(root) if entries else ()
    for entry in entries:
        for one in mdevs:
            if not any(one.is_of(wanted) for wanted in entry.types):
                continue
            first = taken.setdefault(one.uuid, entry)
            if first.resource != entry.resource:
                skipped.append(serves_another(one.uuid, entry.resource, first.resource, first.position))
            elif not one.iommu_group:
                skipped.append(_groupless(one, entry.resource))
            elif first is entry:
                offers.append(_offer(root, entry.resource, one))
    return Found(tuple(offers), tuple(dict.fromkeys(skipped)))


def _groupless(one: Mdev, resource: str) -> Skipped:
    detail = f"the kernel gave {one.uuid} no IOMMU group: its parent's driver did not register it with VFIO"
    return Skipped(one.uuid, resource, NO_IOMMU_GROUP, detail, "look for the driver's messages in the kernel log")


def gone(root: Root, offer: Offer) -> str:
    """Return why a mediated device that was offered is none any more."""
    left = not (root.at(DEVICES) / offer.name).exists()
    return f"{offer.name} was removed from its parent" if left else f"{offer.name} has another type or IOMMU group now"


def _offer(root: Root, resource: str, one: Mdev) -> Offer:
    node = f"{CONTROL_GROUP}/{one.iommu_group}"
    return Offer(
        kind=MDEV,
        resource=resource,
        id=one.iommu_group,
        name=one.uuid,
        values=(one.uuid,),
        required=(node,),
        present=tuple(one for one in (VFIO, node) if root.at(one).exists()),
        numa_node=one.numa_node,
        card=one.parent,
        upstream=one.upstream,
        proofs=(Proof(f"{DEVICES}/{one.uuid}/iommu_group", one.iommu_group), Proof(f"{DEVICES}/{one.uuid}/mdev_type", one.type_id)),
    )

"""From the machine's inventory to what can be handed out now: units with their device nodes as they exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..device.declaration import Declaration
from ..device.grant import unit_folder
from ..device.inventory import Inventory, skipped_dict, unit_dict
from ..kernel.inventory import read_inventory
from ..root import Root
from .answers import Offer, cdev_nodes, group_nodes


def read_offers(root: Root, declaration: Declaration) -> tuple[list[Offer], Inventory]:
    """Return every unit of the declaration with its nodes, and the inventory that they come from."""
    inventory = read_inventory(root, declaration)
    offers = []
    for unit in inventory.units:
        groups = group_nodes(unit)
        present = tuple(node for node in (*groups, *cdev_nodes(unit)) if root.at(node).exists())
        offers.append(Offer(unit, present, tuple(node for node in groups if node not in present)))
    return offers, inventory


def resources_of(declaration: Declaration) -> list[str]:
    """Return the resources that we serve, each once, in order; also those that have no unit now."""
    return list(dict.fromkeys(entry.resource for entry in declaration.served))


def offer_dict(offer: Offer, grants: str) -> dict[str, Any]:
    """Return one unit for the state file."""
    folder = unit_folder(offer.unit.resource, offer.unit.group, grants)
    return {**unit_dict(offer.unit), "health": offer.health, "reason": offer.reason, "nodes": list(offer.nodes), "grant": folder}


def state_dict(offers: Sequence[Offer], inventory: Inventory, served: Sequence[dict[str, Any]], grants: str) -> dict[str, Any]:
    """Return the state file's content: {"version": 1, "resources": [...], "units": [...], "skipped": [...]}."""
    return {
        "version": 1,
        "resources": list(served),
        "units": [offer_dict(offer, grants) for offer in offers],
        "skipped": [skipped_dict(one) for one in inventory.skipped],
    }


def changes(before: Sequence[Offer], after: Sequence[Offer]) -> list[str]:
    """Return one line for each unit that came, went, or changed its health or its reason."""
    old = {(offer.unit.resource, offer.unit.group): offer for offer in before}
    new = {(offer.unit.resource, offer.unit.group): offer for offer in after}
    lines = [
        f"{resource} {group} ({old[resource, group].unit.primary.address}): gone" for resource, group in old if (resource, group) not in new
    ]
    for key, offer in new.items():
        earlier = old.get(key)
        if earlier is None or (earlier.health, earlier.reason) != (offer.health, offer.reason):
            why = f": {offer.reason}" if offer.reason else ""
            lines.append(f"{key[0]} {key[1]} ({offer.unit.primary.address}): {offer.health}{why}")
    return lines

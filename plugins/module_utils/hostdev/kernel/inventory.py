"""The machine's inventory for a declaration: read, then decided by rules that need no machine."""

from __future__ import annotations

from ..device.address import Address
from ..device.declaration import Declaration, Entry
from ..device.inventory import Inventory, decide
from ..device.pci import Function, Group
from ..device.selector import Facts
from ..root import Root
from .facts import MachineFacts
from .pci import read_function, read_group, read_slot, scan


def read_inventory(root: Root, declaration: Declaration, facts: Facts | None = None) -> Inventory:
    """Return which units the machine can hand out for a declaration, and why the other declared functions are none."""
    matches = find(root, declaration, facts)
    groups: dict[str, Group] = {}
    companions: dict[Address, list[Function]] = {}
    for _entry, function in matches:
        if function.iommu_group and function.iommu_group not in groups:
            groups[function.iommu_group] = read_group(root, function.iommu_group)
        if function.address not in companions:
            companions[function.address] = [one for one in read_slot(root, function.address) if one.is_companion_of(function)]
    return decide(matches, groups, companions)


def find(root: Root, declaration: Declaration, facts: Facts | None = None) -> list[tuple[Entry, Function]]:
    """Return (entry, function) for every function that an entry means: entries in their order, functions by address."""
    facts = facts or MachineFacts(root)
    selectors = [selector for entry in declaration.served for selector in entry.selectors]
    wanted = [name for name, id_text, code in scan(root) if any(one.may_match(name, id_text, code) for one in selectors)]
    functions = [read_function(root, address) for address in sorted(Address.parse(name) for name in wanted)]
    return [
        (entry, function)
        for entry in declaration.served
        for function in functions
        if any(selector.matches(function, facts) for selector in entry.selectors)
    ]

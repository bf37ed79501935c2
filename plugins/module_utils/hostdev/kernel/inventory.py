"""The machine's inventory for a declaration: read, then decided by rules that need no machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Optional

from ..device.address import Address
from ..device.declaration import ALL, Declaration, Entry
from ..device.faults import Fault
from ..device.inventory import Holder, Inventory, decide
from ..device.pci import Function, Group
from ..device.selector import Facts
from ..root import Root
from .facts import MachineFacts, Recorded
from .pci import read_function, read_group, read_slot, scan, slot_of
from .record import read_record
from .vfio import read_bound, read_group_of

log = logging.getLogger(__name__)


class Machine:
    """One look at a machine: a scan of what there is, and each function read whole at most once, when it is asked for."""

    def __init__(self, root: Root) -> None:
        """Scan the machine; Absent when it has no PCI."""
        self._root = root
        self._seen = {name: (id_text, code) for name, id_text, code in scan(root)}
        self._functions: dict[Address, Function] = {}

    def function(self, address: Address) -> Function:
        """Return the function at an address."""
        if address not in self._functions:
            self._functions[address] = read_function(self._root, address)
        return self._functions[address]

    def matching(self, declaration: Declaration, facts: Facts) -> list[tuple[Entry, Function]]:
        """Return (entry, function) for every function that an entry means: entries in their order, functions by address."""
        selectors = [selector for entry in declaration.served for selector in entry.selectors]
        wanted = [name for name, (id_text, code) in self._seen.items() if any(one.may_match(name, id_text, code) for one in selectors)]
        functions = [self.function(address) for address in sorted(Address.parse(name) for name in wanted)]
        return [
            (entry, function)
            for entry in declaration.served
            for function in functions
            if any(selector.matches(function, facts) for selector in entry.selectors)
        ]

    def groups(self, functions: Iterable[Function]) -> dict[str, Group]:
        """Return the IOMMU groups of these functions by number."""
        numbers = dict.fromkeys(one.iommu_group for one in functions if one.iommu_group)
        return {number: read_group(self._root, number, self.function) for number in numbers}

    def companions(self, target: Function) -> list[Function]:
        """Return the target's companions in address order; only functions whose ids allow it are read."""
        places = [place for place in slot_of(target.address) if str(place) in self._seen]
        likely = [place for place in places if target.may_have_companion(*self._seen[str(place)])]
        return [one for one in map(self.function, likely) if one.is_companion_of(target)]


def node_facts(root: Root) -> MachineFacts:
    """Return facts in which the node's record counts: of a bound device, `serial` and `driver` mean what was before binding.

    A record that cannot be read is told in the log and is as good as none: devices that no record is needed for stay served.
    """
    return MachineFacts(root, partial(_recorded, root))


def _recorded(root: Root) -> Recorded:
    try:
        return read_record(root).known()
    except Fault as fault:
        log.warning("%s", fault.text())
        return {}


def read_inventory(
    root: Root, declaration: Declaration, facts: Facts | None = None, held: Optional[Mapping[str, Holder]] = None
) -> Inventory:
    """Return which units the machine can hand out for a declaration, and why the other declared functions are none.

    held: groups that units have from before.
    """
    machine = Machine(root)
    matches = machine.matching(declaration, facts or node_facts(root))
    functions = [function for _entry, function in matches]
    companions = {one.address: machine.companions(one) for one in functions}
    return decide(matches, machine.groups([*functions, *_attached(matches, companions)]), companions, held)


def read_units(
    root: Root,
    declaration: Declaration,
    bound: Mapping[str, str],
    facts: Facts | None = None,
    held: Optional[Mapping[str, Holder]] = None,
) -> Inventory:
    """Return what read_inventory does of bound functions, without a look at any other.

    bound: driver by address. Companions are there for entries with functions "all" alone, since no one else hands them out.
    Of skipped functions only those are told that are bound; why the others are no unit is read_inventory's to say.
    """
    known = facts or node_facts(root)
    functions = {name: one for name, driver in bound.items() if (one := read_bound(root, name, driver))}
    ordered = sorted(functions.values(), key=attrgetter("address"))
    matches = [
        (entry, function)
        for entry in declaration.served
        for function in ordered
        if any(selector.matches(function, known) for selector in entry.selectors)
    ]
    whole = [function for entry, function in matches if entry.functions == ALL]
    companions = {target.address: [one for one in read_slot(root, target.address) if one.is_companion_of(target)] for target in whole}
    numbers = {one.iommu_group for _entry, one in matches} | {one.iommu_group for one in _attached(matches, companions)}
    groups = {number: read_group_of(root, number, functions) for number in numbers - {""}}
    return decide(matches, groups, companions, held)


def _attached(matches: Sequence[tuple[Entry, Function]], companions: Mapping[Address, Sequence[Function]]) -> list[Function]:
    return [one for entry, function in matches if entry.functions == ALL for one in companions.get(function.address, ())]


def find(root: Root, declaration: Declaration, facts: Facts | None = None) -> list[tuple[Entry, Function]]:
    """Return (entry, function) for every function that an entry means: entries in their order, functions by address."""
    return Machine(root).matching(declaration, facts or node_facts(root))

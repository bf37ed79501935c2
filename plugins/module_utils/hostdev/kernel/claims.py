"""What the declaration claims of the machine: per IOMMU group the functions that move together, each with its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ..device.address import Address
from ..device.declaration import PCI, Declaration, Entry
from ..device.pci import Function
from ..device.selector import Facts
from ..root import Root
from .inventory import find
from .pci import read_group, read_slot

SELECTED, COMPANION, FOREIGN = "selected", "companion", "foreign member"


@dataclass(frozen=True)
class Member:
    """A function that moves, and why: selected, companion, or foreign member that the user named."""

    function: Function
    part: str

    @property
    def address(self) -> Address:
        """Return the function's address."""
        return self.function.address


@dataclass(frozen=True)
class Claim:
    """One IOMMU group that a resource is to have; group is empty where the IOMMU does not cover the device.

    members: all that move, in address order. strangers: the group's endpoints that are neither selected nor companions
    and that `allow` does not name; while there are any, nothing of the claim may move. allow: of all its entries.
    """

    resource: str
    position: str
    group: str
    members: tuple[Member, ...]
    strangers: tuple[Function, ...] = ()
    allow: frozenset[str] = frozenset()

    @property
    def functions(self) -> tuple[Function, ...]:
        """Return the functions that move, in address order."""
        return tuple(member.function for member in self.members)

    @property
    def primary(self) -> Function:
        """Return the lowest selected function."""
        return next(member.function for member in self.members if member.part == SELECTED)

    @property
    def title(self) -> str:
        """Return "nvidia.com/X (group 13)" for messages."""
        return f"{self.resource} (group {self.group or 'none'})"


def read_claims(root: Root, declaration: Declaration, facts: Optional[Facts] = None) -> tuple[Claim, ...]:
    """Return the claims of a declaration in its order; a group that several entries select is claimed by the first."""
    chosen: dict[str, list[tuple[Entry, Function]]] = {}
    for entry, function in find(root, declaration, facts):
        # without groups the slot is what moves together
        chosen.setdefault(function.iommu_group or function.address.slot_text, []).append((entry, function))
    claims = [_claim(root, matches) for matches in chosen.values()]
    return tuple(_without_doubles(claims))


def unmatched(root: Root, declaration: Declaration, facts: Optional[Facts] = None) -> tuple[Entry, ...]:
    """Return the entries for PCI that no function of this machine matches."""
    found = {id(entry) for entry, _function in find(root, declaration, facts)}
    return tuple(entry for entry in declaration.of(PCI).served if id(entry) not in found)


def _claim(root: Root, matches: Sequence[tuple[Entry, Function]]) -> Claim:
    entry, first = matches[0]
    selected = {function.address: function for _entry, function in matches}
    companions = {
        one.address: one
        for function in selected.values()
        for one in read_slot(root, function.address)
        if one.is_companion_of(function) and one.address not in selected
    }
    group = read_group(root, first.iommu_group).endpoints if first.iommu_group else ()
    others = tuple(one for one in group if one.address not in selected and one.address not in companions)
    allow = frozenset[str]().union(*(one.allow for one, _function in matches))
    named = others if "foreign_members" in allow else ()
    parts = [(SELECTED, selected.values()), (COMPANION, companions.values()), (FOREIGN, named)]
    members = sorted((Member(one, part) for part, functions in parts for one in functions), key=lambda member: member.address)
    return Claim(entry.resource, entry.position, first.iommu_group, tuple(members), () if named else others, allow)


def _without_doubles(claims: Sequence[Claim]) -> Sequence[Claim]:
    """A companion in another group may itself be selected by another entry: it moves once, with the entry that selects it."""
    chosen = {member.address for claim in claims for member in claim.members if member.part == SELECTED}
    taken: set[Address] = set()
    kept = []
    for claim in claims:
        members = tuple(one for one in claim.members if one.part == SELECTED or (one.address not in chosen and one.address not in taken))
        taken |= {member.address for member in members}
        kept.append(Claim(claim.resource, claim.position, claim.group, members, claim.strangers, claim.allow))
    return kept

"""From the functions of a machine to the units that Kubernetes may hand out, and a reason for each that it may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, Optional, Union

from .address import Address
from .declaration import ALL, Entry
from .pci import Function, Group

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
NOT_BOUND, NOT_A_VFIO_DRIVER, VENDOR_DRIVER_PF = "not-bound", "not-a-vfio-driver", "vendor-driver-pf"
NO_IOMMU_GROUP, GROUP_NOT_VIABLE, SHARES_GROUP = "no-iommu-group", "group-not-viable", "shares-group"
SERVED_BY_KUBEVIRT, COMPANION_NOT_BOUND, UNREADABLE = "served-by-kubevirt", "companion-not-bound", "unreadable"


@dataclass(frozen=True)
class Unit:
    """What Kubernetes allocates: one IOMMU group, known by its number, for one resource (design decision 2).

    primary: the lowest selected function, whose address is the unit's value. selected: further selected members.
    companions: the primary's companions, wherever they are grouped; with functions "all" they go to the guest too.
    members: all of the group, in address order. others: the further groups that attached companions are in. blockers: the
    members of all its groups that are on a driver of the host; the unit is unhealthy while there are any.
    """

    resource: str
    group: str
    primary: Function
    selected: tuple[Function, ...] = ()
    companions: tuple[Function, ...] = ()
    blockers: tuple[Function, ...] = ()
    functions: str = "primary"
    members: tuple[Function, ...] = ()
    others: tuple[Group, ...] = ()

    @property
    def endpoints(self) -> tuple[Function, ...]:
        """Return the members of all its groups that VFIO counts."""
        own = Group(self.group, self.members).endpoints
        return (*own, *(one for group in self.others for one in group.endpoints)) if self.others else own

    @property
    def troubles(self) -> tuple[tuple[str, str], ...]:
        """Return (code, text) of each reason why the unit is unhealthy as far as the kernel's tables tell."""
        if not self.blockers and not self.guest_companions:
            return ()
        own = [one for one in self.blockers if one.iommu_group == self.group]
        told = {one.address for one in own}
        found = [(GROUP_NOT_VIABLE, f"IOMMU group {self.group} is not viable: {_held(own)}")] if own else []
        return (*found, *(trouble for one in self.guest_companions if one.address not in told for trouble in self._troubles_of(one)))

    def _troubles_of(self, companion: Function) -> Iterator[tuple[str, str]]:
        held = [one for one in self.blockers if one.iommu_group == companion.iommu_group != self.group]
        name = f"companion {companion.address}"
        if not companion.is_usable:
            yield COMPANION_NOT_BOUND, f"{name} is {'on ' + companion.driver if companion.driver else 'not bound to a driver'}"
        elif not companion.iommu_group:
            yield COMPANION_NOT_BOUND, f"{name} has no IOMMU group"
        elif held:
            yield GROUP_NOT_VIABLE, f"{name} is in IOMMU group {companion.iommu_group}, which is not viable: {_held(held)}"

    @property
    def trouble(self) -> str:
        """Return why the unit is unhealthy as far as the kernel's tables tell; empty when it is not."""
        return "; ".join(text for _code, text in self.troubles)

    @property
    def trouble_code(self) -> str:
        """Return the first reason as one word; empty when there is none."""
        return next((code for code, _text in self.troubles), "")

    @property
    def health(self) -> str:
        """Return "Healthy" or "Unhealthy" (device plugin API v1beta1), as far as the kernel's tables tell."""
        return UNHEALTHY if self.troubles else HEALTHY

    @property
    def numa_node(self) -> Optional[int]:
        """Return the NUMA node for the topology hint; None gives none."""
        return self.primary.numa_node

    @property
    def guest_companions(self) -> tuple[Function, ...]:
        """Return the companions that are attached to the guest beside the primary."""
        return self.companions if self.functions == ALL else ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Return every group whose node the launcher needs: the unit's own first, then those of attached companions."""
        if not self.guest_companions:
            return (self.group,)
        return tuple(dict.fromkeys([self.group] + [c.iommu_group for c in self.guest_companions if c.iommu_group]))


class Holder(NamedTuple):
    """Who has an IOMMU group: the unit, by its own group's number, of a resource; position: of its entry, empty where unknown."""

    unit: str
    resource: str
    position: str = ""

    def __str__(self) -> str:
        """Return "nvidia.com/X (devices[0])"."""
        return f"{self.resource} ({self.position})" if self.position else self.resource


@dataclass(frozen=True)
class Skipped:
    """A device that the declaration means and that is not advertised as healthy, with the reason.

    address: of a PCI function; of other kinds the name that people know (uuid, port, node), or what the entry selects.
    """

    address: Union[Address, str]
    resource: str
    reason: str
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class Inventory:
    """Units in order of the declaration and then of addresses; skipped functions in order of addresses, once for each resource."""

    units: tuple[Unit, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the inventory for JSON: {"units": [...], "skipped": [...]}."""
        return {"units": [unit_dict(unit) for unit in self.units], "skipped": [skipped_dict(one) for one in self.skipped]}


def unit_dict(unit: Unit) -> dict[str, Any]:
    """Return one unit for JSON output."""
    return {
        "resource": unit.resource,
        "group": unit.group,
        "address": str(unit.primary.address),
        "id": unit.primary.id,
        "driver": unit.primary.driver,
        "health": unit.health,
        "numa_node": unit.numa_node,
        "functions": unit.functions,
        "selected": [str(one.address) for one in unit.selected],
        "companions": [str(one.address) for one in unit.companions],
        "blockers": [one.label() for one in unit.blockers],
    }


def skipped_dict(one: Skipped) -> dict[str, Any]:
    """Return one skipped function for JSON output."""
    return {"address": str(one.address), "resource": one.resource, "reason": one.reason, "detail": one.detail, "hint": one.hint}


_Chosen = dict[str, tuple[Entry, list[Function]]]
_Reasons = dict[tuple[str, Address], Skipped]


def decide(
    matches: Sequence[tuple[Entry, Function]],
    groups: Mapping[str, Group],
    companions: Mapping[Address, Sequence[Function]],
    held: Optional[Mapping[str, Holder]] = None,
) -> Inventory:
    """Return the inventory for functions that match entries.

    matches: (entry, function) in the order of the declaration, functions in address order. groups: by number, of every
    matched function and of companions that go to the guest. companions: by the address of matched functions. held: groups
    that units outside of this decision, or of an earlier one, have already.
    """
    chosen, skipped = _claims(matches)
    units: list[Unit] = []
    taken = dict(held or {})
    for number, (entry, members) in chosen.items():
        unit = _unit(number, entry, members, groups, companions)
        needed = unit.groups
        other = next((group for group in needed if group in taken and taken[group].unit != number), "")
        if other:
            # what goes along with a unit of its own resource is handed out, though it is no unit
            along = _attached_by(units, taken[other]) if taken[other].resource == entry.resource else frozenset()
            for one in members:
                if one.address not in along:
                    skipped[entry.resource, one.address] = _shares(entry, one, other, taken[other])
            continue
        for group in needed:
            taken[group] = Holder(number, entry.resource, entry.position)
        units.append(unit)
        if unit.troubles:
            skipped[unit.resource, unit.primary.address] = _troubled(unit)
    if not skipped:
        return Inventory(tuple(units))
    handed = {(unit.resource, one.address) for unit in units if not unit.troubles for one in (unit.primary, *unit.selected)}
    rest = [one for key, one in skipped.items() if key not in handed]
    return Inventory(tuple(units), tuple(sorted(rest, key=attrgetter("address"))))


def _claims(matches: Sequence[tuple[Entry, Function]]) -> tuple[_Chosen, _Reasons]:
    """Return by group the first entry that claims it, with its functions there; and what is no unit by itself."""
    chosen: _Chosen = {}
    skipped: _Reasons = {}
    for entry, function in matches:
        reason = unusable(function)
        if reason:
            skipped.setdefault((entry.resource, function.address), Skipped(function.address, entry.resource, *reason))
            continue
        first, members = chosen.setdefault(function.iommu_group, (entry, []))
        if first.resource != entry.resource:
            holder = Holder(function.iommu_group, first.resource, first.position)
            skipped.setdefault((entry.resource, function.address), _shares(entry, function, function.iommu_group, holder))
        elif function not in members:
            members.append(function)
    return chosen, skipped


def _attached_by(units: Sequence[Unit], holder: Holder) -> frozenset[Address]:
    return frozenset(one.address for unit in units if unit.group == holder.unit for one in unit.guest_companions)


def _unit(
    number: str, entry: Entry, members: list[Function], groups: Mapping[str, Group], companions: Mapping[Address, Sequence[Function]]
) -> Unit:
    primary, *selected = sorted(members, key=attrgetter("address"))
    own = groups.get(number, Group(number, tuple(members)))
    attached = tuple(companions.get(primary.address, ()))
    blockers = tuple(member for member in own.members if member.blocks_group)
    unit = Unit(entry.resource, number, primary, tuple(selected), attached, blockers, entry.functions, own.members)
    if not unit.guest_companions:
        return unit
    others = tuple(groups[group] for group in unit.groups[1:] if group in groups)
    further = (member for group in others for member in group.members if member.blocks_group)
    return replace(unit, others=others, blockers=(*blockers, *further))


def unusable(function: Function) -> Optional[tuple[str, str, str]]:
    """Return why the function cannot be given away as it is: reason, detail, hint; None when it can."""
    site = f"run site.yml: it binds {function.address} to vfio-pci"
    if not function.is_usable:
        if not function.driver:
            return NOT_BOUND, "no driver is bound", site
        if "vfio" in function.driver:
            return (
                NOT_A_VFIO_DRIVER,
                f"driver {function.driver} registered no VFIO device (no vfio-dev folder)",
                "look for its messages in the kernel log",
            )
        if function.is_physical_function:
            hint = f"{site}; or declare its virtual functions instead"
            return VENDOR_DRIVER_PF, f"physical function on driver {function.driver}", hint
        hint = f"{site}, unless another device plugin is to serve it on {function.driver}"
        without = ", without a vGPU profile" if function.vgpu_type else ""
        return NOT_BOUND, f"bound to the host's driver {function.driver}{without}", hint
    if not function.iommu_group:
        return NO_IOMMU_GROUP, "no IOMMU group: the IOMMU is off or does not cover this function", "run site.yml: it says what to switch on"
    return None


def _held(blockers: Sequence[Function]) -> str:
    return f"held by drivers of the host: {', '.join(f'{one.address} {one.driver}' for one in blockers)}"


def _shares(entry: Entry, function: Function, group: str, holder: Holder) -> Skipped:
    whose = "its" if group == function.iommu_group else "its companion's"
    detail = f"{whose} IOMMU group {group} already serves {holder}"
    return Skipped(function.address, entry.resource, SHARES_GROUP, detail, "a group goes to one guest as a whole; drop one of the entries")


def serves_another(address: Union[Address, str], resource: str, holder: str, position: str) -> Skipped:
    """Return the reason of a device that an earlier entry of another resource has; position: of that entry."""
    hint = "a device serves the first entry that means it; drop one of the entries, or select more narrowly"
    return Skipped(address, resource, SHARES_GROUP, f"its device serves {holder} ({position})", hint)


def _troubled(unit: Unit) -> Skipped:
    hint = "run site.yml: companions move with the selected function"
    return Skipped(unit.primary.address, unit.resource, unit.trouble_code, unit.trouble, hint)

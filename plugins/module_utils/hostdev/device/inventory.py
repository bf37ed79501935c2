"""From the functions of a machine to the units that Kubernetes may hand out, and a reason for each that it may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from .address import Address
from .declaration import ALL, Entry
from .pci import Function, Group

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
NOT_BOUND, NOT_A_VFIO_DRIVER, VENDOR_DRIVER_PF = "not-bound", "not-a-vfio-driver", "vendor-driver-pf"
NO_IOMMU_GROUP, GROUP_NOT_VIABLE, SHARES_GROUP = "no-iommu-group", "group-not-viable", "shares-group"
SERVED_BY_KUBEVIRT = "served-by-kubevirt"


@dataclass(frozen=True)
class Unit:
    """What Kubernetes allocates: one IOMMU group, known by its number, for one resource (design decision 2).

    primary: the lowest selected function, whose address is the unit's value. selected: further selected members.
    companions: the primary's companions, wherever they are grouped; with functions "all" they go to the guest too.
    members: all of the group, in address order. blockers: those on a driver of the host; the unit is unhealthy while there are any.
    """

    resource: str
    group: str
    primary: Function
    selected: tuple[Function, ...] = ()
    companions: tuple[Function, ...] = ()
    blockers: tuple[Function, ...] = ()
    functions: str = "primary"
    members: tuple[Function, ...] = ()

    @property
    def endpoints(self) -> tuple[Function, ...]:
        """Return the members that VFIO counts."""
        return Group(self.group, self.members).endpoints

    @property
    def trouble(self) -> str:
        """Return why the unit is unhealthy as far as the kernel's tables tell; empty when it is not."""
        held = ", ".join(f"{one.address} {one.driver}" for one in self.blockers)
        return f"IOMMU group {self.group} is not viable: held by drivers of the host: {held}" if held else ""

    @property
    def health(self) -> str:
        """Return "Healthy" or "Unhealthy" (device plugin API v1beta1), as far as the kernel's tables tell."""
        return UNHEALTHY if self.blockers else HEALTHY

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
        return tuple(dict.fromkeys([self.group] + [c.iommu_group for c in self.guest_companions if c.iommu_group]))


@dataclass(frozen=True)
class Skipped:
    """A device that the declaration means and that is not advertised as healthy, with the reason.

    address: of a PCI function; of other kinds the name that people know (uuid, port, node).
    """

    address: Union[Address, str]
    resource: str
    reason: str
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class Inventory:
    """Units in order of the declaration and then of addresses; skipped functions in order of addresses."""

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


def decide(
    matches: Sequence[tuple[Entry, Function]], groups: Mapping[str, Group], companions: Mapping[Address, Sequence[Function]]
) -> Inventory:
    """Return the inventory for functions that match entries.

    matches: (entry, function) in the order of the declaration, functions in address order. groups: by number, of every
    matched function. companions: by the address of matched functions.
    """
    chosen: dict[str, tuple[Entry, list[Function]]] = {}
    skipped: dict[Address, Skipped] = {}
    for entry, function in matches:
        reason = unusable(function)
        holder = chosen.setdefault(function.iommu_group, (entry, [])) if not reason else None
        if holder is None or reason:
            skipped.setdefault(function.address, Skipped(function.address, entry.resource, *(reason or ("", "", ""))))
        elif holder[0].resource != entry.resource:
            skipped.setdefault(function.address, _shares(entry, function, holder[0]))
        elif function not in holder[1]:
            holder[1].append(function)
    units = [_unit(number, entry, members, groups, companions) for number, (entry, members) in chosen.items()]
    for unit in units:
        if unit.blockers:
            skipped[unit.primary.address] = _not_viable(unit)
    taken = {one.address for unit in units if not unit.blockers for one in (unit.primary, *unit.selected)}
    rest = [skipped[address] for address in sorted(skipped) if address not in taken]
    return Inventory(tuple(units), tuple(rest))


def _unit(
    number: str, entry: Entry, members: list[Function], groups: Mapping[str, Group], companions: Mapping[Address, Sequence[Function]]
) -> Unit:
    primary, *others = sorted(members, key=lambda one: one.address)
    group = groups.get(number, Group(number, tuple(members)))
    blockers = tuple(member for member in group.endpoints if member.blocks_group)
    attached = tuple(companions.get(primary.address, ()))
    return Unit(entry.resource, number, primary, tuple(others), attached, blockers, entry.functions, group.members)


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
        return NOT_BOUND, f"bound to the host's driver {function.driver}", hint
    if not function.iommu_group:
        return NO_IOMMU_GROUP, "no IOMMU group: the IOMMU is off or does not cover this function", "run site.yml: it says what to switch on"
    return None


def _shares(entry: Entry, function: Function, other: Entry) -> Skipped:
    detail = f"its IOMMU group {function.iommu_group} already serves {other.resource} ({other.position})"
    return Skipped(function.address, entry.resource, SHARES_GROUP, detail, "a group goes to one guest as a whole; drop one of the entries")


def _not_viable(unit: Unit) -> Skipped:
    hint = "run site.yml: companions move with the selected function"
    return Skipped(unit.primary.address, unit.resource, GROUP_NOT_VIABLE, unit.trouble, hint)

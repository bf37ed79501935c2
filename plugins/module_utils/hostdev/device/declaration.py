"""The declaration: which devices go under which resource name, from our own grammar or KubeVirt's permittedHostDevices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .faults import Refused
from .names import check_resource, refuse_collisions
from .selector import Selector, parse_id, parse_selector, refuse, text_of

PRIMARY, ALL = "primary", "all"
ALLOWANCES = ("console", "nic", "foreign_members")
_KEYS = ("resource", "select", "functions", "allocation", "allow")
_LATER = ("bundle", "node", "count", "permissions")


@dataclass(frozen=True)
class Entry:
    """One resource and the functions meant by it.

    selectors: a function that matches any of them is meant. functions: "primary" or "all" (the slot's other functions
    go to the guest too). allow: safety rules that the user waives for this entry. external: another device plugin
    serves the resource; it is permitted but neither bound nor advertised by us. position: where it stands, for messages.
    """

    resource: str
    selectors: tuple[Selector, ...]
    functions: str = PRIMARY
    allow: frozenset[str] = frozenset()
    external: bool = False
    position: str = ""


@dataclass(frozen=True)
class Declaration:
    """All entries, in the order in which groups are given to them: the first that claims a group has it."""

    entries: tuple[Entry, ...] = ()

    @property
    def served(self) -> tuple[Entry, ...]:
        """Return the entries that we bind and advertise."""
        return tuple(entry for entry in self.entries if not entry.external)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return every permitted resource name once, external ones included, in order of appearance."""
        return tuple(dict.fromkeys(entry.resource for entry in self.entries))


def parse_declaration(
    devices: Optional[Sequence[Any]] = None,
    permitted: Optional[Mapping[str, Any]] = None,
    name: str = "hostdev_devices",
    permitted_name: str = "hostdev_permitted_host_devices",
) -> Declaration:
    """Return the declaration of both blocks; Refused with the position of the first thing that is wrong.

    Refused are also: one selector under two resources, and two names that share an environment variable.
    """
    entries = [_entry(value, f"{name}[{i}]") for i, value in enumerate(_list(devices, name))]
    entries += _permitted(permitted or {}, permitted_name)
    _refuse_double_selectors(entries)
    refuse_collisions([entry.resource for entry in entries])
    return Declaration(tuple(entries))


def _list(value: object, position: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise refuse(position, value, f"a list is needed here, not {type(value).__name__}")
    return value


def _mapping(value: object, position: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(position, value, f"a map is needed here, not {type(value).__name__}")
    for key in value:
        if key in _LATER:
            raise refuse(f"{position}.{key}", value[key], "this version serves PCI functions only")
        if key not in known:
            raise refuse(f"{position}.{key}", value[key], f"unknown key; known are {', '.join(known)}")
    return value


def _entry(value: object, position: str) -> Entry:
    given = _mapping(value, position, _KEYS)
    for key in ("resource", "select"):
        if given.get(key) in (None, ""):
            raise refuse(position, value, f"{key} is missing")
    select = given["select"]
    maps = select if isinstance(select, Sequence) and not isinstance(select, str) else [select]
    if not maps:
        raise refuse(f"{position}.select", select, "at least one map of keys is needed")
    places = [f"{position}.select[{i}]" if maps is select else f"{position}.select" for i in range(len(maps))]
    if _choice(given.get("allocation", "device_plugin"), ("device_plugin", "dra"), f"{position}.allocation") == "dra":
        raise refuse(f"{position}.allocation", "dra", "this version allocates by its device plugin only")
    return Entry(
        resource=check_resource(text_of(given["resource"], f"{position}.resource"), f"{position}.resource"),
        selectors=tuple(parse_selector(one, place) for one, place in zip(maps, places)),
        functions=_choice(given.get("functions", PRIMARY), (PRIMARY, ALL), f"{position}.functions"),
        allow=frozenset(_choice(word, ALLOWANCES, f"{position}.allow") for word in _list(given.get("allow"), f"{position}.allow")),
        position=position,
    )


def _choice(value: object, choices: Sequence[str], position: str) -> str:
    if value not in choices:
        raise refuse(position, value, f"it has to be one of {', '.join(choices)}")
    return str(value)


def _permitted(block: Mapping[str, Any], name: str) -> list[Entry]:
    """Read KubeVirt's block; its mediated and USB lists are only accepted where another plugin serves them."""
    known = ("pciHostDevices", "mediatedDevices", "usb")
    _mapping(block, name, known)
    entries = []
    for kind in known:
        for i, value in enumerate(_list(block.get(kind), f"{name}.{kind}")):
            position = f"{name}.{kind}[{i}]"
            given = _mapping(
                value, position, ("pciVendorSelector", "mdevNameSelector", "selectors", "resourceName", "externalResourceProvider")
            )
            external = _flag(given.get("externalResourceProvider", False), f"{position}.externalResourceProvider")
            resource = check_resource(text_of(given.get("resourceName"), f"{position}.resourceName"), f"{position}.resourceName")
            if kind == "pciHostDevices":
                selectors: tuple[Selector, ...] = (Selector(id=parse_id(given.get("pciVendorSelector"), f"{position}.pciVendorSelector")),)
            elif external:
                selectors = ()
            else:
                raise refuse(
                    position,
                    resource,
                    "this version serves PCI functions only",
                    "set externalResourceProvider: true if another plugin serves it",
                )
            entries.append(Entry(resource, selectors, external=external, position=position))
    return entries


def _flag(value: object, position: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(position, value, "true or false is needed here")
    return value


def _refuse_double_selectors(entries: Sequence[Entry]) -> None:
    first: dict[Selector, Entry] = {}
    for entry in entries:
        for selector in entry.selectors:
            other = first.setdefault(selector, entry)
            if other.resource != entry.resource:
                raise Refused(
                    what="accept the declaration",
                    subject=f"{other.position} ({other.resource}) and {entry.position} ({entry.resource})",
                    cause=f"both select {selector}",
                    hint="a device serves one resource: keep one of the two entries, or tell the devices apart by address, slot or serial",
                )

"""The declaration: which devices go under which resource name, from our own grammar or KubeVirt's permittedHostDevices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Optional

from .faults import Refused
from .mdev import type_key
from .names import check_resource, refuse_collisions
from .nodes import IOMMU, Node, parse_node
from .selector import Selector, parse_id, parse_selector, refuse, text_of
from .usb import Bundle, parse_usb

PRIMARY, ALL = "primary", "all"
ALLOWANCES = ("console", "nic", "foreign_members")
PCI, MDEV, USB, NODE, IOMMUFD = "pci", "mdev", "usb", "node", "iommufd"
_COMMON = ("resource", "allocation")
# what names the devices of an entry -> the keys that may stand beside it
_FORMS = {"select": ("functions", "allow"), "bundle": (), "node": ("count", "permissions")}


@dataclass(frozen=True)
class Entry:
    """One resource and the devices meant by it, all of one kind.

    kind: pci, mdev, usb, node or iommufd. selectors (pci): a function that matches any of them is meant. types (mdev):
    names or ids of types. bundles (usb): each is a unit of as many devices as it has selectors. node: path and count.
    functions: "primary" or "all" (the slot's other functions go to the guest too). allow: safety rules that the user
    waives for this entry. external: another device plugin serves the resource; it is permitted but neither bound nor
    advertised by us. position: where it stands, for messages.
    """

    resource: str
    selectors: tuple[Selector, ...] = ()
    functions: str = PRIMARY
    allow: frozenset[str] = frozenset()
    external: bool = False
    position: str = ""
    kind: str = PCI
    types: tuple[str, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    node: Optional[Node] = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return what the entry selects, each alternative as text for messages."""
        bundles = [" with ".join(map(str, bundle)) for bundle in self.bundles]
        node = [self.node.path] if self.node else []
        return (*map(str, self.selectors), *(f"mdev type {one}" for one in self.types), *bundles, *node)

    @property
    def claims(self) -> tuple[object, ...]:
        """Return what no other resource may select, as values that are equal when they mean the same and tell what they mean."""
        members = [selector for bundle in self.bundles for selector in bundle]
        node = [self.node.path] if self.node else []
        return (*self.selectors, *(f"mdev type {type_key(one)}" for one in self.types), *members, *node)


@dataclass(frozen=True)
class Declaration:
    """All entries, in the order in which groups are given to them: the first that claims a group has it."""

    entries: tuple[Entry, ...] = ()

    @cached_property
    def served(self) -> tuple[Entry, ...]:
        """Return the entries that we advertise."""
        return tuple(entry for entry in self.entries if not entry.external)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return every permitted resource name once, external ones included, in order of appearance."""
        return tuple(dict.fromkeys(entry.resource for entry in self.entries))

    def of(self, *kinds: str) -> Declaration:
        """Return the served entries of some kinds as a declaration."""
        made = self._parts.get(kinds)
        if made is None:
            made = self._parts[kinds] = Declaration(tuple(entry for entry in self.served if entry.kind in kinds))
        return made

    # asked for at every look
    @cached_property
    def _parts(self) -> dict[tuple[str, ...], Declaration]:
        return {}


def parse_declaration(
    devices: Optional[Sequence[Any]] = None,
    permitted: Optional[Mapping[str, Any]] = None,
    name: str = "hostdev_devices",
    permitted_name: str = "hostdev_permitted_host_devices",
) -> Declaration:
    """Return the declaration of both blocks; Refused with the position of the first thing that is wrong.

    Refused are also: one selector under two resources, one resource of two kinds, and two names that share an
    environment variable.
    """
    entries = [_entry(value, f"{name}[{i}]") for i, value in enumerate(_list(devices, name))]
    entries += _permitted(permitted or {}, permitted_name)
    _refuse_double_selectors(entries)
    _refuse_mixed_kinds(entries)
    refuse_collisions({entry.resource: f"{entry.position} ({entry.resource})" for entry in reversed(entries)})
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
        if key not in known:
            raise refuse(f"{position}.{key}", value[key], f"unknown key; known are {', '.join(known)}")
    return value


def _entry(value: object, position: str) -> Entry:
    keys = (*_COMMON, *(key for form, others in _FORMS.items() for key in (form, *others)))
    given = _mapping(value, position, keys)
    resource = given.get("resource")
    if resource in (None, ""):
        raise refuse(position, value, "resource is missing")
    forms = [form for form in _FORMS if given.get(form) not in (None, "")]
    if len(forms) != 1:
        cause = f"{' and '.join(forms)} exclude each other" if forms else "select is missing (or bundle, or node)"
        raise refuse(position, value, cause)
    for key in given:
        if key not in (*_COMMON, *forms, *_FORMS[forms[0]]):
            raise refuse(f"{position}.{key}", given[key], f"it does not go with {forms[0]}")
    _choose_server(given, position)
    kind, meant = {"select": _selected, "bundle": _bundled, "node": _noded}[forms[0]](given, position)
    return Entry(
        resource=check_resource(text_of(resource, f"{position}.resource"), f"{position}.resource"), position=position, kind=kind, **meant
    )


def _choose_server(given: Mapping[str, Any], position: str) -> None:
    if _choice(given.get("allocation", "device_plugin"), ("device_plugin", "dra"), f"{position}.allocation") == "dra":
        raise refuse(f"{position}.allocation", "dra", "this version allocates by its device plugin only")


Meant = tuple[str, dict[str, Any]]


def _selected(given: Mapping[str, Any], position: str) -> Meant:
    select = given["select"]
    maps = select if isinstance(select, Sequence) and not isinstance(select, str) else [select]
    if not maps:
        raise refuse(f"{position}.select", select, "at least one map of keys is needed")
    places = [f"{position}.select[{i}]" if maps is select else f"{position}.select" for i in range(len(maps))]
    kinds = [_kind_of(one) for one in maps]
    if len(set(kinds)) > 1:
        cause = f"devices of different kinds: {', '.join(dict.fromkeys(kinds))}"
        raise refuse(f"{position}.select", select, cause, "one entry for each kind")
    if kinds[0] != PCI:
        for key in _FORMS["select"]:
            if key in given:
                raise refuse(f"{position}.{key}", given[key], "it is for PCI devices only")
    if kinds[0] == USB:
        return USB, {"bundles": tuple((_only("usb", one, place, parse_usb),) for one, place in zip(maps, places))}
    if kinds[0] == MDEV:
        return MDEV, {"types": tuple(_only("mdev_type", one, place, text_of) for one, place in zip(maps, places))}
    allowed = _list(given.get("allow"), f"{position}.allow")
    return PCI, {
        "selectors": tuple(parse_selector(one, place) for one, place in zip(maps, places)),
        "functions": _choice(given.get("functions", PRIMARY), (PRIMARY, ALL), f"{position}.functions"),
        "allow": frozenset(_choice(word, ALLOWANCES, f"{position}.allow") for word in allowed),
    }


def _kind_of(selector: object) -> str:
    named = selector if isinstance(selector, Mapping) else {}
    return next((kind for key, kind in (("usb", USB), ("mdev_type", MDEV)) if key in named), PCI)


def _only(key: str, value: object, position: str, parse: Callable[[object, str], Any]) -> Any:
    return parse(_mapping(value, position, (key,))[key], f"{position}.{key}")


def _bundled(given: Mapping[str, Any], position: str) -> Meant:
    members = _list(given["bundle"], f"{position}.bundle")
    if not members:
        raise refuse(f"{position}.bundle", given["bundle"], "at least one member is needed")
    places = [f"{position}.bundle[{i}]" for i in range(len(members))]
    for one, place in zip(members, places):
        if not isinstance(one, Mapping) or "usb" not in one:
            raise refuse(place, one, "a map with the key usb is needed", 'for example {usb: {vendor: "046d", product: "c077"}}')
    return USB, {"bundles": (tuple(_only("usb", one, place, parse_usb) for one, place in zip(members, places)),)}


def _noded(given: Mapping[str, Any], position: str) -> Meant:
    node = parse_node(given, position)
    return (IOMMUFD if node.path == IOMMU else NODE), {"node": node}


def _choice(value: object, choices: Sequence[str], position: str) -> str:
    if value not in choices:
        raise refuse(position, value, f"it has to be one of {', '.join(choices)}")
    return str(value)


# KubeVirt's list -> the key that selects, and what an entry of ours is made of
_PERMITTED: dict[str, tuple[str, Callable[[object, str], Meant]]] = {
    "pciHostDevices": ("pciVendorSelector", lambda value, place: (PCI, {"selectors": (Selector(id=parse_id(value, place)),)})),
    "mediatedDevices": ("mdevNameSelector", lambda value, place: (MDEV, {"types": (text_of(value, place),)})),
    "usb": ("selectors", lambda value, place: (USB, {"bundles": (_usb_selectors(value, place),)})),
}


def _permitted(block: Mapping[str, Any], name: str) -> list[Entry]:
    """Read KubeVirt's block (types.go, PermittedHostDevices): several USB selectors of one entry are one unit."""
    _mapping(block, name, tuple(_PERMITTED))
    entries = []
    for listed, (key, read) in _PERMITTED.items():
        for i, value in enumerate(_list(block.get(listed), f"{name}.{listed}")):
            position = f"{name}.{listed}[{i}]"
            given = _mapping(value, position, (key, "resourceName", "externalResourceProvider"))
            resource = check_resource(text_of(given.get("resourceName"), f"{position}.resourceName"), f"{position}.resourceName")
            if key not in given:
                raise refuse(position, resource, f"{key} is missing")
            kind, meant = read(given[key], f"{position}.{key}")
            external = _flag(given.get("externalResourceProvider", False), f"{position}.externalResourceProvider")
            entries.append(Entry(resource, external=external, position=position, kind=kind, **meant))
    return entries


def _usb_selectors(value: object, position: str) -> Bundle:
    given = _list(value, position)
    if not given:
        raise refuse(position, value, "at least one selector is needed", "a list of {vendor, product}")
    made = []
    for i, one in enumerate(given):
        place = f"{position}[{i}]"
        for key in ("vendor", "product"):
            if key not in _mapping(one, place, ("vendor", "product")):
                raise refuse(place, one, f"{key} is missing")
        made.append(parse_usb(one, place))
    return tuple(made)


def _flag(value: object, position: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(position, value, "true or false is needed here")
    return value


def _refuse_double_selectors(entries: Sequence[Entry]) -> None:
    first: dict[object, Entry] = {}
    for entry in entries:
        for claim in entry.claims:
            other = first.setdefault(claim, entry)
            if other.resource != entry.resource:
                raise Refused(
                    what="accept the declaration",
                    subject=f"{other.position} ({other.resource}) and {entry.position} ({entry.resource})",
                    cause=f"both select {claim}",
                    hint="a device serves one resource: keep one of the two entries, or tell the devices apart by address, slot or serial",
                )


def _refuse_mixed_kinds(entries: Sequence[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.resource, entry)
        if other.kind != entry.kind or (other is not entry and entry.node):
            cause = (
                f"one is {other.kind}, the other {entry.kind}" if other.kind != entry.kind else "a node is declared once, with its count"
            )
            raise Refused(
                what="accept the declaration",
                subject=f"{other.position} and {entry.position}, both {entry.resource}",
                cause=cause,
                hint="give each its own resource name",
            )

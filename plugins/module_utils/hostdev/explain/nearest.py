"""Entries of a declaration that mean no device of this machine, each with what comes nearest to it there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Callable

from ..device.declaration import MDEV, PCI, USB, Declaration, Entry
from ..device.mdev import type_key
from ..device.selector import Selector
from ..device.usb import UsbSelector
from ..kernel.claims import unmatched as unmatched_pci
from ..kernel.mdev import read_mdevs
from ..kernel.pci import has_pci, scan
from ..kernel.usb import read_usb
from ..root import Root, entries, read_text

_MOST = 3
_BRIDGES = ("0600", "0604")
Named = tuple[str, str]


@dataclass(frozen=True)
class Unmatched:
    """entry: means no device. near: what is there instead, as text; empty where there is nothing of the kind. hint: the mend."""

    entry: Entry
    kind_words: str
    near: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """Return "devices[0]: no PCI function of this node has id 10de:ffff; nearest ids present are 10de:2684 (0000:01:00.0)"."""
        asked = f"{self.entry.position}: no {self.kind_words} {' or '.join(self.entry.wanted)}"
        return f"{asked}; {self.near}" if self.near else asked


def read_unmatched(root: Root, declaration: Declaration) -> tuple[Unmatched, ...]:
    """Return the served entries that no device of this machine matches, in the declaration's order; a node is always offered."""
    found = [one for kind, read in _READERS.items() if declaration.of(kind).entries for one in read(root, declaration.of(kind))]
    order = {entry.position: i for i, entry in enumerate(declaration.entries)}
    return tuple(sorted(found, key=lambda one: order[one.entry.position]))


def _pci(root: Root, declaration: Declaration) -> list[Unmatched]:
    missing = unmatched_pci(root, declaration) if has_pci(root) else declaration.of(PCI).served
    present = sorted(row for row in scan(root) if not row[2].startswith(_BRIDGES)) if missing and has_pci(root) else []
    hint = "compare the entry with `lspci -Dnn` on the node"

    def near(entry: Entry) -> str:
        return _join(_near_pci(selector, present) for selector in entry.selectors)

    return [Unmatched(one, "PCI function of this node has", near(one), hint) for one in missing]


def _near_pci(selector: Selector, present: Sequence[tuple[str, str, str]]) -> str:
    keys = (
        ("ids", selector.id, [(number, address) for address, number, _class in present]),
        ("addresses", str(selector.address or ""), [(address, number) for address, number, _class in present]),
        ("classes", selector.class_code, [(code, address) for address, _number, code in present]),
    )
    for name, wanted, named in keys:
        if wanted:
            there = [where for value, where in named if value.startswith(wanted)]
            return _elsewhere(wanted, there, selector) if there else _nearest(name, wanted, named)
    return ""


def _elsewhere(wanted: str, there: Sequence[str], selector: object) -> str:
    return f"{wanted} is there ({', '.join(there[:_MOST])}), but not with {selector}"


def _mdev(root: Root, declaration: Declaration) -> list[Unmatched]:
    present = read_mdevs(root)
    made = [(one.type, one.uuid) for one in present]
    can = list(_creatable(root))
    hint = "make devices of the type: write a uuid to the parent's mdev_supported_types/TYPE/create"

    def near(entry: Entry) -> str:
        return _join(_near_type(wanted, made, can) for wanted in entry.types)

    missing = [one for one in declaration.entries if not any(two.is_of(wanted) for two in present for wanted in one.types)]
    return [Unmatched(one, "mediated device of this node is", near(one), hint) for one in missing]


def _near_type(wanted: str, made: Sequence[Named], can: Sequence[tuple[str, str, str, str]]) -> str:
    meant = type_key(wanted)
    parents = [f"{parent} can make {left}" for type_id, name, parent, left in can if meant in (type_key(type_id), type_key(name))]
    if parents:
        return f"no device of the type exists: {', '.join(parents[:_MOST])}"
    return _nearest("types", wanted, [*made, *((name or type_id, parent) for type_id, name, parent, _left in can)])


def _creatable(root: Root) -> Iterable[tuple[str, str, str, str]]:
    """Yield (type id, name, parent, how many are left) of every type that a parent can make (drivers/vfio/mdev/mdev_sysfs.c)."""
    bus = root.sysfs("class", "mdev_bus")
    for parent in entries(bus):
        types = bus / parent / "mdev_supported_types"
        for type_id in entries(types):
            yield type_id, read_text(types / type_id / "name") or "", parent, read_text(types / type_id / "available_instances") or "0"


def _usb(root: Root, declaration: Declaration) -> list[Unmatched]:
    present = read_usb(root)
    plugged = [(one.id, f"port {one.port}" + (f", serial {one.serial}" if one.serial else "")) for one in present]
    hint = "plug it in, or compare the entry with `lsusb` on the node"
    made = []
    for entry in declaration.entries:
        selectors = [selector for bundle in entry.bundles for selector in bundle]
        if not any(selector.matches(one) for selector in selectors for one in present):
            near = _join(_near_usb(selector, plugged) for selector in selectors)
            made.append(Unmatched(entry, "USB device of this node is", near, hint))
    return made


def _near_usb(selector: UsbSelector, plugged: Sequence[Named]) -> str:
    wanted = f"{selector.vendor or 0:04x}:{selector.product or 0:04x}"
    there = [where for number, where in plugged if number == wanted]
    return _elsewhere(wanted, there, selector) if there else _nearest("ids", wanted, plugged)


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _nearest(name: str, wanted: str, present: Iterable[Named]) -> str:
    """Return "nearest ids present are 10de:2685 (0000:01:00.0)": those of the same vendor first, then by how alike they look."""
    places: dict[str, list[str]] = {}
    for value, where in present:
        places.setdefault(value, []).append(where)

    def rank(value: str) -> tuple[bool, float, str]:
        return value.partition(":")[0] != wanted.partition(":")[0], -SequenceMatcher(None, value, wanted).ratio(), value

    near = [f"{value} ({', '.join(places[value][:_MOST])})" for value in sorted(places, key=rank)[:_MOST]]
    return f"nearest {name} present are {', '.join(near)}" if near else ""


_READERS: dict[str, Callable[[Root, Declaration], list[Unmatched]]] = {PCI: _pci, MDEV: _mdev, USB: _usb}

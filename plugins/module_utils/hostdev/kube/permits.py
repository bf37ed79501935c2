"""What a declaration asks of KubeVirt: entries of permittedHostDevices, all of them with externalResourceProvider.

Types: PermittedHostDevices of kubevirt.io/api/core/v1. Generic nodes have no list there: virt-handler serves its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..device.declaration import MDEV, PCI, USB, Declaration, Entry
from ..device.mdev import type_key
from ..device.usb import Bundle

PCI_LIST, MDEV_LIST, USB_LIST = "pciHostDevices", "mediatedDevices", "usb"
EXTERNAL = "externalResourceProvider"
_KINDS = (PCI, MDEV, USB)


def _usb_key(selector: object) -> str:
    given = selector if isinstance(selector, Mapping) else {}
    sides = [str(given.get(side, "")).strip().lower() for side in ("vendor", "product")]
    try:
        return ":".join(f"{int(side, 16):04x}" for side in sides)
    except ValueError:
        return ":".join(sides)


# list -> the key that selects, and its value as texts that are equal where virt-handler would find the same devices
_KEYS: dict[str, tuple[str, Callable[[Any], list[str]]]] = {
    PCI_LIST: ("pciVendorSelector", lambda value: [str(value).lower()]),
    MDEV_LIST: ("mdevNameSelector", lambda value: [type_key(str(value))]),
    USB_LIST: ("selectors", lambda value: sorted(_usb_key(one) for one in value or ())),
}
LISTS = tuple(_KEYS)


@dataclass(frozen=True)
class Permit:
    """One entry of one of the lists; value: the entry as it stands in the CR."""

    listed: str
    value: Mapping[str, Any]

    @property
    def resource(self) -> str:
        """Return the resource name, empty where there is none."""
        return str(self.value.get("resourceName", ""))

    @property
    def external(self) -> bool:
        """Return whether another device plugin than KubeVirt's serves it."""
        return self.value.get(EXTERNAL) is True

    @property
    def keys(self) -> tuple[str, ...]:
        """Return what it selects: one text, of a USB entry one per device."""
        name, read = _KEYS[self.listed]
        return tuple(read(self.value[name])) if name in self.value else ()

    def is_same(self, other: Permit) -> bool:
        """Return whether both permit the same devices under the same name, whoever serves them."""
        return (self.listed, self.resource, self.keys) == (other.listed, other.resource, other.keys)

    def shares_devices(self, other: Permit) -> bool:
        """Return whether both select some device."""
        return self.listed == other.listed and not set(self.keys).isdisjoint(other.keys)

    def __str__(self) -> str:
        """Return "pciHostDevices 10de:2684 (nvidia.com/X)" for messages."""
        return f"{self.listed} {' with '.join(self.keys) or 'without a selector'} ({self.resource or 'without a name'})"


@dataclass(frozen=True)
class Wanted:
    """What is to be permitted. resources: every declared name that KubeVirt's lists know a kind for.

    by_nodes: of these, the ones whose selectors only the nodes can translate. A run rarely sees all nodes, so that what was
    found for these names before stays. complete: whether no other host declares anything; only then entries of ours go that
    are not wanted.
    """

    permits: tuple[Permit, ...] = ()
    resources: tuple[str, ...] = ()
    by_nodes: frozenset[str] = frozenset()
    complete: bool = True

    def keeps(self, one: Permit) -> bool:
        """Return whether an entry of ours stays."""
        return not self.complete or one.resource in self.by_nodes or any(one.is_same(other) for other in self.permits)


def wanted(declarations: Sequence[Declaration], functions: Sequence[Mapping[str, Any]] = (), complete: bool = True) -> Wanted:
    """Return what the declarations of some hosts ask for. functions: what pci_info told of the declared functions of all nodes.

    An entry of a declaration that another plugin serves is permitted as well.
    """
    entries = [entry for one in declarations for entry in one.entries if entry.kind in _KINDS]
    ids: dict[str, set[str]] = {}
    for one in functions:
        if one.get("part") == "selected":
            ids.setdefault(str(one.get("resource")), set()).add(str(one.get("id")))
    made: list[Permit] = []
    for entry in entries:
        for permit in _permits(entry, sorted(ids.get(entry.resource, ()))):
            if not any(permit.is_same(other) for other in made):
                made.append(permit)
    names = tuple(dict.fromkeys(entry.resource for entry in entries))
    return Wanted(tuple(made), names, frozenset(entry.resource for entry in entries if _needs_nodes(entry)), complete)


def _needs_nodes(entry: Entry) -> bool:
    return any(not selector.id for selector in entry.selectors)


def _permits(entry: Entry, found: Sequence[str]) -> Iterator[Permit]:
    """Yield the entries for one of the declaration; found: ids of its resource on the nodes, asked where it gives none."""
    ids = [selector.id for selector in entry.selectors if selector.id] + list(found if _needs_nodes(entry) else ())
    for one in ids:
        yield _permit(PCI_LIST, one, entry.resource)
    for one in entry.types:
        yield _permit(MDEV_LIST, one, entry.resource)
    for bundle in entry.bundles:
        if all(one.vendor is not None and one.product is not None for one in bundle):
            yield _permit(USB_LIST, _usb_selectors(bundle), entry.resource)


def _usb_selectors(bundle: Bundle) -> list[dict[str, str]]:
    return [{"vendor": f"{one.vendor:04x}", "product": f"{one.product:04x}"} for one in bundle]


def _permit(listed: str, selector: object, resource: str) -> Permit:
    return Permit(listed, {_KEYS[listed][0]: selector, "resourceName": resource, EXTERNAL: True})

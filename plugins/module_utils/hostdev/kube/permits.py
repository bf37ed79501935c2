"""What a declaration asks of KubeVirt: entries of permittedHostDevices, all of them with externalResourceProvider.

Types: PermittedHostDevices of kubevirt.io/api/core/v1. Generic nodes have no list there: virt-handler serves its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Union

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


def wanted(
    declarations: Sequence[Declaration],
    functions: Sequence[Mapping[str, Any]] = (),
    usb: Sequence[Mapping[str, Any]] = (),
    complete: bool = True,
) -> Wanted:
    """Return what the declarations of some hosts ask for. functions, usb: what pci_info told of the declared devices of all nodes.

    An entry of a declaration that another plugin serves is permitted as well.
    """
    entries = [entry for one in declarations for entry in one.entries if entry.kind in _KINDS]
    made: list[Permit] = []
    for entry in entries:
        for listed, selector in _selectors(entry, functions, usb):
            permit = Permit(listed, {_KEYS[listed][0]: selector, "resourceName": entry.resource, EXTERNAL: True})
            if not any(permit.is_same(other) for other in made):
                made.append(permit)
    names = tuple(dict.fromkeys(entry.resource for entry in entries))
    return Wanted(tuple(made), names, frozenset(entry.resource for entry in entries if _needs_nodes(entry)), complete)


def _needs_nodes(entry: Entry) -> bool:
    return any(not selector.id for selector in entry.selectors) or not all(map(_is_told, entry.bundles))


def _is_told(bundle: Bundle) -> bool:
    return all(one.vendor is not None and one.product is not None for one in bundle)


def _selectors(
    entry: Entry, functions: Sequence[Mapping[str, Any]], usb: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Union[str, list[dict[str, str]]]]]:
    """Yield list and selector of each entry that one of the declaration becomes; the nodes are asked for what it does not say."""
    yield from ((PCI_LIST, selector.id) for selector in entry.selectors if selector.id)
    if any(not selector.id for selector in entry.selectors):
        found = {str(one["id"]) for one in functions if (one.get("resource"), one.get("part")) == (entry.resource, "selected")}
        yield from ((PCI_LIST, one) for one in sorted(found))
    yield from ((MDEV_LIST, one) for one in entry.types)
    for bundle in entry.bundles:
        if _is_told(bundle):
            yield USB_LIST, [{"vendor": f"{one.vendor:04x}", "product": f"{one.product:04x}"} for one in bundle]
        else:
            plugged = [one["devices"] for one in usb if one.get("resource") == entry.resource and _fits(bundle, one["devices"])]
            yield from ((USB_LIST, [{key: str(one[key]) for key in ("vendor", "product")} for one in devices]) for devices in plugged)


def _fits(bundle: Bundle, devices: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether devices may be a bundle: an entry may have several, and the nodes tell the devices only."""
    pairs = [(one, int(device["vendor"], 16), int(device["product"], 16)) for one, device in zip(bundle, devices)]
    return len(bundle) == len(devices) and all(
        one.vendor in (None, vendor) and one.product in (None, product) for one, vendor, product in pairs
    )

"""From entries with their addresses to hostdevs: KubeVirt's order, aliases and rules for displays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import List, Optional, Tuple

from ..device.address import Address
from ..device.faults import Refused
from .hostdev import KINDS, GuestPlace, Hostdev
from .sources import Entry, Resolved, Unit

_PREFIXES: Mapping[str, str] = {"gpus": "gpu-", "hostDevices": "hostdevice-"}
_USB = "usb-host-"
_LISTS = ("hostDevices", "gpus")
_ORDER = ("pci", "mdev", "usb")


def alias_of(entry: Entry, unit: Unit) -> str:
    """Return the alias of an entry's first device, without "ua-" (KubeVirt's prefixes; USB has its own in any list)."""
    return (_USB if kind_of(unit) == "usb" else _PREFIXES[entry.kind]) + entry.device.name


def kind_of(unit: Unit) -> str:
    """Return pci, mdev or usb."""
    return KINDS[type(unit.primary)]


def in_domain_order(resolved: Sequence[Tuple[Entry, Unit]]) -> Resolved:
    """Return the entries as their devices stand in the domain: hostDevices, then gpus; in each PCI, then mdev, then USB, as written."""
    return sorted(resolved, key=lambda pair: (_LISTS.index(pair[0].kind), _ORDER.index(kind_of(pair[1]))))


def ports_needed(resolved: Sequence[Tuple[Entry, Unit]]) -> int:
    """Return how many root ports of our own the entries need: one per PCI device of several functions."""
    return sum(_is_multifunction(unit) for dummy, unit in resolved)


def _is_multifunction(unit: Unit) -> bool:
    return bool(unit.companions) and kind_of(unit) == "pci"


def hostdevs(resolved: Sequence[Tuple[Entry, Unit]], buses: Iterable[int], *, screen: bool = True) -> List[Hostdev]:
    """Return the hostdevs of resolved entries, in the order of the domain.

    A PCI unit with companions becomes one multifunction device: it takes the next of `buses`, the numbers of root ports
    that are kept for such, the primary as function 0, the companions in their order behind it. All devices of a USB bundle
    are attached (KubeVirt attaches the first alone). screen: whether the domain has one; libvirt refuses a device that
    shows without, so none does by default, and Refused is one that is told to.
    """
    ordered, free = in_domain_order(resolved), iter(buses)
    shown = _first_to_show(ordered) if screen else None
    made: List[Hostdev] = []
    for entry, unit in ordered:
        display, ramfb = (True, True) if entry is shown else _shows(entry, kind_of(unit), screen=screen)
        guests = _places(next(free), len(unit.companions)) if _is_multifunction(unit) else [None] * len(unit.addresses)
        for alias, address, guest in zip(_aliases(alias_of(entry, unit), unit), unit.addresses, guests):
            first = address is unit.primary
            made.append(Hostdev(alias, address, guest, display=display and first, ramfb=ramfb and first))
    return made


def _aliases(alias: str, unit: Unit) -> Iterator[str]:
    yield alias
    letter = "f" if kind_of(unit) == "pci" else "d"
    for number in range(1, len(unit.addresses)):
        yield f"{alias}-{letter}{number}"


def _places(bus: int, companions: int) -> List[Optional[GuestPlace]]:
    functions = range(1, companions + 1)
    return [GuestPlace(Address(0, bus, 0, 0), multifunction=True), *(GuestPlace(Address(0, bus, 0, number)) for number in functions)]


def _shows(entry: Entry, kind: str, *, screen: bool) -> Tuple[bool, bool]:
    # a PCI device shows nothing unless it is told to, in so many words; a mediated one all that it is not told not to
    # (KubeVirt hostdevice/hostdev.go; where that reads an unset ramFB.enabled of a mediated device it crashes)
    display, mdev = entry.device.display, kind == "mdev"
    if display is None:
        return False, False
    if not screen:
        _refuse_to_show(entry, wanted=display.enabled is True)
        return False, False
    enabled = mdev if display.enabled is None else display.enabled
    ramfb = mdev if display.ramfb is None or display.ramfb.enabled is None else display.ramfb.enabled
    return enabled, enabled and ramfb


def _refuse_to_show(entry: Entry, *, wanted: bool) -> None:
    if wanted:
        raise Refused(
            what="show a device's display",
            subject=f"{entry.path}.virtualGPUOptions.display.enabled",
            cause="the guest has no screen, and libvirt takes no device that shows without",
            hint="leave it out, or false",
        )


def _first_to_show(ordered: Sequence[Tuple[Entry, Unit]]) -> Optional[Entry]:
    """Return the first mediated GPU when no GPU says anything about its display: it shows, with ramfb (KubeVirt's default)."""
    gpus = [(entry, unit) for entry, unit in ordered if entry.kind == "gpus"]
    if any(entry.device.display for entry, dummy in gpus):
        return None
    return next((entry for entry, unit in gpus if kind_of(unit) == "mdev"), None)

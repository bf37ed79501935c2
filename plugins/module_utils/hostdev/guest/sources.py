"""Where the address of a device of the manifest comes from. A source answers for the entries that it serves.

The environment that the device plugin's Allocate fills; the metadata of DRA claims joins as another source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Dict, List, Protocol, Tuple

from ..device.faults import Refused
from ..device.names import PREFIXES, variable
from ..vmi.devices import HostDevice
from ..vmi.spec import Spec
from .addresses import HostAddress


@dataclass(frozen=True)
class Entry:
    """One entry of gpus or hostDevices: its path in the manifest, the list it stands in, and what it says."""

    path: str
    kind: str
    device: HostDevice


@dataclass(frozen=True)
class Unit:
    """What an entry gets: a device's address, and those of its companions that go to the guest with it.

    Companions are other functions of a PCI device, or the other devices of a USB bundle.
    """

    primary: HostAddress
    companions: Tuple[HostAddress, ...] = ()

    @property
    def addresses(self) -> Tuple[HostAddress, ...]:
        """Return all of its addresses, the primary first."""
        return (self.primary, *self.companions)


class Source(Protocol):
    """One way to addresses."""

    def serves(self, entry: Entry) -> bool:
        """Return whether the entry's address comes from here."""

    def resolve(self, entries: Sequence[Entry]) -> List[Unit]:
        """Return one unit per entry, in order; a Fault when any of them cannot have one."""


Resolved = List[Tuple[Entry, Unit]]


def entries_of(spec: Spec) -> Tuple[Entry, ...]:
    """Return the entries in the order in which addresses are drawn: hostDevices, then gpus, each as written."""
    return tuple(Entry(path, "gpus" if ".gpus[" in path else "hostDevices", device) for path, device in spec.host_devices)


def resolve(entries: Sequence[Entry], sources: Sequence[Source]) -> Resolved:
    """Return each entry with its unit, in the entries' order; Refused when no source serves an entry, or two give one address."""
    found: Dict[str, Unit] = {}
    for source in sources:
        own = [entry for entry in entries if source.serves(entry) and entry.path not in found]
        found.update(zip((entry.path for entry in own), source.resolve(own)))
    for entry in entries:
        if entry.path not in found:
            raise Refused(
                what="find a device's address",
                subject=f"{entry.path} ({entry.device.name})",
                cause="it names no resource",
                hint=f"give it a deviceName; the launcher then reads {variable(PREFIXES['pci'], 'DOMAIN/NAME')}",
            )
    resolved = [(entry, found[entry.path]) for entry in entries]
    refuse_shared([(entry.path, address) for entry, unit in resolved for address in unit.addresses])
    return resolved


def refuse_shared(given: Sequence[Tuple[str, HostAddress]]) -> None:
    """Raise Refused when one address goes to two places of the manifest, given as (path, address)."""
    first: Dict[HostAddress, str] = {}
    for path, address in given:
        other = first.setdefault(address, path)
        if other != path:
            hint = "one device cannot be attached twice; two device plugins may be offering it"
            raise Refused(
                what="give every device an address", subject=str(address), cause=f"{other} and {path} would both get it", hint=hint
            )

"""Where the address of a device of the manifest comes from. A source answers for the entries that it serves.

Today: the environment that the device plugin's Allocate fills. The metadata of DRA claims joins as another source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Dict, List, Protocol, Tuple

from ..device.address import Address
from ..device.faults import Refused
from ..device.names import PREFIXES, variable
from ..vmi.devices import HostDevice
from ..vmi.spec import Spec
from .companions import read_companions
from .pools import Pools, read_pools


@dataclass(frozen=True)
class Entry:
    """One entry of gpus or hostDevices: its path in the manifest, the list it stands in, and what it says."""

    path: str
    kind: str
    device: HostDevice


@dataclass(frozen=True)
class Unit:
    """What an entry gets: the device's address, and its companions that go to the guest with it."""

    primary: Address
    companions: Tuple[Address, ...] = ()


class Source(Protocol):
    """One way to addresses."""

    def serves(self, entry: Entry) -> bool:
        """Return whether the entry's address comes from here."""

    def resolve(self, entries: Sequence[Entry]) -> List[Unit]:
        """Return one unit per entry, in order; a Fault when any of them cannot have one."""


def entries_of(spec: Spec) -> Tuple[Entry, ...]:
    """Return the entries in the order in which addresses are drawn: hostDevices, then gpus, each as written."""
    return tuple(Entry(path, "gpus" if ".gpus[" in path else "hostDevices", device) for path, device in spec.host_devices)


@dataclass(frozen=True)
class EnvironmentSource:
    """PCI_RESOURCE_<NAME> and HOSTDEV_COMPANIONS_<NAME>, as the device plugin's Allocate sets them (KubeVirt contract C4)."""

    environment: Mapping[str, str]

    def serves(self, entry: Entry) -> bool:
        """Return whether the entry names a resource."""
        return bool(entry.device.device_name)

    def resolve(self, entries: Sequence[Entry]) -> List[Unit]:
        """Return the addresses in the order drawn; counts are checked for all variables before the first is drawn."""
        names = [entry.device.device_name for entry in entries]
        pools: Pools[Address] = read_pools(self.environment, PREFIXES["pci"], names, Address.parse)
        pools.check([(entry.path, entry.device.device_name) for entry in entries])
        companions = read_companions(self.environment, names, pools)
        drawn = [pools.take(name) for name in names]
        return [Unit(address, companions.get(address, ())) for address in drawn]


def resolve(entries: Sequence[Entry], sources: Sequence[Source]) -> List[Tuple[Entry, Unit]]:
    """Return each entry with its unit, in the entries' order; Refused when no source serves an entry."""
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
    return [(entry, found[entry.path]) for entry in entries]

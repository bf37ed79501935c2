"""The variables that the device plugin's Allocate sets, as a source of addresses (KubeVirt contract C4).

PCI_RESOURCE_<NAME>, MDEV_PCI_RESOURCE_<NAME>, USB_RESOURCE_<NAME>, and HOSTDEV_COMPANIONS_<NAME> beside the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Dict, List, Tuple

from ..device.address import Address
from ..device.faults import Refused
from ..device.names import PREFIXES, variable
from .addresses import HostAddress, MdevAddress, UsbAddress
from .companions import read_companions
from .pools import Miscounted, Pools, read_pools
from .sources import Entry, Unit

PARSERS: Mapping[str, Callable[[str], HostAddress]] = {"pci": Address.parse, "mdev": MdevAddress.parse, "usb": UsbAddress.parse}
_NOT_USB = "a USB device is no GPU"
_ONE_KIND = "The device plugin sets one of them; another program has set the other"


@dataclass(frozen=True)
class EnvironmentSource:
    """A container's variables. A resource is of the one kind whose variable holds addresses."""

    environment: Mapping[str, str]

    def serves(self, entry: Entry) -> bool:
        """Return whether the entry names a resource."""
        return bool(entry.device.device_name)

    def kind(self, resource: str) -> str:
        """Return pci, mdev or usb; Refused when two variables hold addresses, pci when none is there."""
        named = {kind: variable(prefix, resource) for kind, prefix in PREFIXES.items()}
        present = [kind for kind in named if named[kind] in self.environment]
        filled = [kind for kind in present if self.environment[named[kind]].removesuffix(",")]
        if len(filled) > 1:
            said = " and ".join(f"{named[kind]}={self.environment[named[kind]]!r}" for kind in filled)
            raise Refused(what="give every device an address", subject=resource, cause=f"{said} name devices of two kinds", hint=_ONE_KIND)
        return (filled or present or ["pci"])[0]

    def resolve(self, entries: Sequence[Entry]) -> List[Unit]:
        """Return the units in the order drawn; counts are checked for all variables before the first is drawn."""
        kinds = {entry.device.device_name: self.kind(entry.device.device_name) for entry in entries}
        by_kind = {kind: [entry for entry in entries if kinds[entry.device.device_name] == kind] for kind in PARSERS}
        self._refuse_unset(entries)
        _refuse_usb_gpus(by_kind["usb"])
        pools = {kind: self._pools(kind, mine) for kind, mine in by_kind.items()}
        for kind, mine in by_kind.items():
            pools[kind].check([(entry.path, entry.device.device_name) for entry in mine])
        sizes = _bundle_sizes(pools["usb"], by_kind["usb"])
        companions = read_companions(self.environment, [entry.device.device_name for entry in by_kind["pci"]], pools["pci"])
        return [_draw(pools[kinds[name]], name, sizes, companions) for name in (entry.device.device_name for entry in entries)]

    def _pools(self, kind: str, entries: Sequence[Entry]) -> Pools[HostAddress]:
        return read_pools(self.environment, PREFIXES[kind], [entry.device.device_name for entry in entries], PARSERS[kind])

    def _refuse_unset(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            resource = entry.device.device_name
            names = [variable(prefix, resource) for prefix in PREFIXES.values()]
            if any(name in self.environment for name in names):
                continue
            wanted = sum(other.device.device_name == resource for other in entries)
            raise Miscounted(
                what="give every device an address",
                subject=entry.path,
                cause=f"{wanted} of the manifest's devices ask for {resource}, and {names[0]} is not set, nor {' nor '.join(names[1:])}; "
                f"{self._set()}",
                hint=f"The device plugin sets it when the kubelet allocates the device: the pod has to request {resource} {wanted} times",
            )

    def _set(self) -> str:
        prefixes = tuple(f"{prefix}_" for prefix in PREFIXES.values())
        there = [f"{name}={value!r}" for name, value in sorted(self.environment.items()) if name.startswith(prefixes)]
        return f"set are {', '.join(there)}" if there else "no such variable is set at all"


def _refuse_usb_gpus(entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.kind == "gpus":
            hint = "name it under hostDevices"
            subject = f"{entry.path} ({entry.device.device_name})"
            raise Refused(what="give every device an address", subject=subject, cause=_NOT_USB, hint=hint)


def _bundle_sizes(pools: Pools[HostAddress], entries: Sequence[Entry]) -> Dict[str, int]:
    """Return how many USB devices each variable's entries get: the plugin writes all devices of a unit, unit after unit."""
    sizes: Dict[str, int] = {}
    for name, pool in pools.by_variable.items():
        mine = [entry for entry in entries if pools.of(entry.device.device_name) is pool]
        sizes[name], rest = divmod(len(pool.addresses), len(mine))
        if rest:
            raise Miscounted(
                what="give every device an address",
                subject=mine[0].path,
                cause=f"{len(mine)} of the manifest's devices share {pool.said}: {len(pool.addresses)} addresses are no whole bundles",
                hint="every unit of a resource has as many USB devices as the resource has selectors",
            )
    return sizes


def _draw(pools: Pools[HostAddress], resource: str, sizes: Mapping[str, int], companions: Mapping[Address, Tuple[Address, ...]]) -> Unit:
    primary = pools.take(resource)
    if isinstance(primary, Address):
        return Unit(primary, companions.get(primary, ()))
    rest = sizes.get(pools.of(resource).variable, 1) - 1
    return Unit(primary, tuple(_several(pools, resource, rest)))


def _several(pools: Pools[HostAddress], resource: str, count: int) -> Iterator[HostAddress]:
    for _number in range(count):
        yield pools.take(resource)

"""Which network interfaces the machine needs: default route, management address, membership in bonds and bridges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..device.faults import Fault
from ..root import Root, entries, read_link_name, read_text
from .management import management_addresses

_NET = ("class", "net")
_ROUTE_UP = 0x1


@dataclass(frozen=True)
class Network:
    """What the machine's network rests upon.

    default_routes: interfaces with one. addresses: (interface, address), link-local ones left out. management: why the
    machine needs an address, by address, IPv4 and IPv6 as text.
    """

    default_routes: frozenset[str] = frozenset()
    addresses: tuple[tuple[str, str], ...] = ()
    management: Mapping[str, str] = field(default_factory=dict)

    @property
    def management_interfaces(self) -> dict[str, str]:
        """Return the interfaces that carry a management address, each with the address and what shows that it is one."""
        return {name: f"{address} ({self.management[address]})" for name, address in self.addresses if address in self.management}


def read_network(root: Root, management: Iterable[str] = ()) -> Network:
    """Return the network facts; to the given management addresses come those that the machine shows to be in use as such."""
    return Network(_default_routes(root), _addresses(root), management_addresses(root, management))


def chain(root: Root, name: str) -> frozenset[str]:
    """Return an interface and all that is built upon it: masters (bond, bridge, OVS), VLANs and the like (upper_* links)."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        master = read_link_name(root.sysfs(*_NET, one, "master"))
        uppers = [entry[len("upper_") :] for entry in entries(root.sysfs(*_NET, one)) if entry.startswith("upper_")]
        waiting += [*uppers, *([master] if master else [])]
    return frozenset(found)


def reaches(root: Root, name: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return which of the wanted interfaces rest upon this one; a wanted port of the same bridge or OVS counts too."""
    own = chain(root, name)
    masters = {one: read_link_name(root.sysfs(*_NET, one, "master")) for one in wanted}
    return tuple(sorted(one for one, master in masters.items() if one in own or (master and master in own)))


def _default_routes(root: Root) -> frozenset[str]:
    names: set[str] = set()
    for line in (read_text(root.proc("net", "route")) or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000" and int(fields[3], 16) & _ROUTE_UP:
            names.add(fields[0])
    for line in (read_text(root.proc("net", "ipv6_route")) or "").splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[0] == "0" * 32 and fields[1] == "00" and int(fields[8], 16) & _ROUTE_UP:
            names.add(fields[9])
    return frozenset(names - {"lo"})


def _addresses(root: Root) -> tuple[tuple[str, str], ...]:
    try:
        done = root.run(["ip", "-json", "address", "show"], timeout=30)
        links = json.loads(done.out) if done.code == 0 and done.out.strip() else []
    except (Fault, ValueError):
        return ()
    found = [(link.get("ifname", ""), one) for link in links for one in link.get("addr_info", [])]
    return tuple((name, str(one.get("local", ""))) for name, one in found if one.get("scope") not in ("link", "host"))

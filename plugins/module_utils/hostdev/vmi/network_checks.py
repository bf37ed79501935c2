"""Rules over networks and interfaces together (KubeVirt pkg/network/admitter: netsource.go, netiface.go)."""

from __future__ import annotations

from difflib import get_close_matches

from .networks import Interface, Network
from .schema import Problems
from .spec import Spec


def network_problems(spec: Spec, path: str) -> Problems:
    """Yield what is wrong with each network, each interface, and their pairs of one name."""
    interfaces = {one.name: one for one in spec.domain.devices.interfaces}
    networks = {one.name: one for one in spec.networks}
    for index, network in enumerate(spec.networks):
        yield from _network(network, f"{path}.networks[{index}]", list(interfaces))
    yield from _doubles([one.name for one in spec.networks], f"{path}.networks")
    place = f"{path}.domain.devices.interfaces"
    for index, interface in enumerate(spec.domain.devices.interfaces):
        yield from _interface(interface, networks.get(interface.name), f"{place}[{index}]", list(networks))
    yield from _doubles([one.name for one in spec.domain.devices.interfaces], place)
    yield from _boot_orders(spec, place)
    yield from _default_networks(spec, path)


def _network(network: Network, place: str, interfaces: list[str]) -> Problems:
    if network.sources != 1:
        yield place, f"exactly one of pod, multus and resourceClaim has to be there, are {network.sources}"
    if network.name not in interfaces:
        yield f"{place}.name", f"{network.name!r} is the name of no interface{_near(network.name, interfaces)}"


def _interface(interface: Interface, network: Network | None, place: str, networks: list[str]) -> Problems:
    if len(interface.bindings) != 1:
        yield place, f"exactly one of masquerade, passt and sriov has to be there, are {', '.join(interface.bindings) or 'none'}"
    if network is None:
        yield f"{place}.name", f"{interface.name!r} is the name of no network{_near(interface.name, networks)}"
    elif interface.sriov is not None and network.pod is not None:
        yield f"{place}.sriov", "a virtual function does not come from the pod's network; its network has to be multus"
    elif interface.sriov is None and network.pod is None:
        yield f"{place}.{(interface.bindings or ('masquerade',))[0]}", "serves the pod's network alone; use sriov for this one"
    if interface.sriov is not None and interface.ports:
        yield f"{place}.ports", "ports of the pod do not lead to a virtual function"


def _doubles(names: list[str], place: str) -> Problems:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"{place}[{index}].name", f"{name!r} is also the name of {place}[{names.index(name)}]"


def _boot_orders(spec: Spec, place: str) -> Problems:
    orders = {disk.boot_order: f"disk {disk.name!r}" for disk in spec.domain.devices.disks if disk.boot_order}
    for index, interface in enumerate(spec.domain.devices.interfaces):
        if interface.boot_order in orders:
            yield f"{place}[{index}].bootOrder", f"{interface.boot_order} is the order of {orders[interface.boot_order]} too"
        elif interface.boot_order:
            orders[interface.boot_order] = f"interface {interface.name!r}"


def _default_networks(spec: Spec, path: str) -> Problems:
    """The pod's network and one that takes its place exclude each other, and there is one of either."""
    first = ""
    for index, network in enumerate(spec.networks):
        if network.pod is None and not (network.multus and network.multus.default):
            continue
        if first:
            yield f"{path}.networks[{index}]", f"is the pod's network, as {first} is; there is one"
        first = first or f"{path}.networks[{index}]"


def _near(name: str, others: list[str]) -> str:
    near = get_close_matches(name, others, 1)
    return f"; nearest: {near[0]}" if near else ""

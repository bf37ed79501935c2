"""Adapter of launcher-pci-placement.json: NUMA nodes, root complex and PCI hole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest import numa
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.addresses import MdevAddress, UsbAddress
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.elements import element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import GuestPlace, Hostdev
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.placement import Placed, place_by_numa
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.root_complex import place_on_root_complex
from ansible_collections.vfio.passthrough.tests.cases.converted import controllers, domain
from ansible_collections.vfio.passthrough.tests.cases.hostdevs import address_of
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases", "sysfs")
# of a guest that is placed by NUMA node unless something forbids it
_NODES, _CPUS = {"0000:81:01.0": 0}, {"0": "0-1"}
_NO_UUID = MdevAddress("00000000-0000-0000-0000-000000000000")


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per question; what is asked is told by what is given."""
    hosts = {name: _host(found["pci_numa_node"], found["node_cpulist"]) for name, found in document.get("sysfs", {}).items()}
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        check = next((check for key, check in _CHECKS.items() if key in given), None)
        yield Case(case["id"], partial(check, given, want, hosts.get(given.get("sysfs", "A"), numa.HostNuma())) if check else None)


def _host(nodes: Mapping[str, int], cpus: Mapping[str, str]) -> numa.HostNuma:
    lists = {int(node): numa.numbers_of(text) or () for node, text in cpus.items()}
    return numa.HostNuma({Address.parse(device): node for device, node in nodes.items()}, lists)


def _guest(given: dict[str, Any]) -> numa.GuestNuma:
    cells = tuple(numa.Cell(int(one["id"]), frozenset(numa.numbers_of(one["cpus"]) or ())) for one in given.get("cells") or ())
    pins = {one["vcpu"]: numa.numbers_of(one["cpuset"]) or () for one in given.get("vcpupins") or ()}
    return numa.GuestNuma(cells, pins, tuple(numa.Binding(one["cellid"], one["nodeset"]) for one in given.get("memnodes") or ()))


def _check_placement(given: dict[str, Any], want: dict[str, Any], host: numa.HostNuma) -> None:
    devices = [_hostdev(one) for one in given["hostdevs"]]
    highest = max((int(one["index"]) for one in given.get("existing_controllers", ())), default=0)
    before = list(devices)
    try:
        placed = place_by_numa(devices, (), highest, _guest(given), host, strict=given["strict"])
    except Fault as fault:
        same({"error": _kind(fault), "missing": [one for one in want["message_contains"] if one not in _text(fault)]}, _missing_none(want))
        same(devices, before)
    else:
        same(_as_dict(placed), {key: _numbers(want[key]) for key in want})


def _hostdev(given: dict[str, Any]) -> Hostdev:
    if given["type"] != "pci":
        return Hostdev(given["type"], _NO_UUID if given["type"] == "mdev" else UsbAddress(1, 2))
    guest = GuestPlace(address_of(given["address"])) if "address" in given else None
    return Hostdev(given["alias"], Address.parse(given["source"]), guest)


def _kind(fault: Fault) -> str:
    return "NUMA_BUS_EXHAUSTED" if "insufficient bus numbers" in fault.cause else "NUMA_STRICT"


def _text(fault: Fault) -> str:
    # KubeVirt's first words, which are ours in another order: what was tried, and that it was strict
    return f"strict PCI NUMA-aware placement failed: {fault}" if "strict" in fault.subject else str(fault)


def _missing_none(want: dict[str, Any]) -> dict[str, Any]:
    return {"error": want["error"], "missing": []}


def _as_dict(placed: Placed) -> dict[str, Any]:
    return {
        "new_controllers": [
            {
                "type": "pci",
                "index": str(one.index),
                "model": one.model,
                **({"target": {"busNr": one.bus_number, "node": one.node}} if one.node is not None else {}),
                **({"address": _place(one.place)} if one.place else {}),
            }
            for one in placed.controllers
        ],
        "device_addresses": {str(one.source): _place(one.guest) for one in placed.devices if one.kind == "pci"},
    }


def _place(place: Optional[GuestPlace]) -> Any:
    return ["pci", str(place.address)] if place else None


def _numbers(value: Any) -> Any:
    """Return the value with PCI addresses as this adapter compares them: as numbers."""
    if isinstance(value, dict):
        return ["pci", str(address_of(value))] if "slot" in value else {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def _check_lookup(given: dict[str, Any], want: dict[str, Any], host: numa.HostNuma) -> None:
    located = numa.locate([Address.parse(one) for one in given["lookup"]], _guest(given), host)
    same({str(device): cell for device, cell in located.cells.items()}, want["cells"])
    said = "; ".join(one.reason for one in located.warnings)
    assert want.get("warning_contains", "") in said, said


def _check_affinity(given: dict[str, Any], want: dict[str, Any], host: numa.HostNuma) -> None:
    same({"vcpus": list(numa.aligned_vcpus(Address.parse(given["vcpu_affinity_of"]), _guest(given), host))}, want)


def _check_node(given: dict[str, Any], want: dict[str, Any], host: numa.HostNuma) -> None:
    try:
        same({"node": host.node(Address.parse(given["numa_node_of"]))}, want)
    except Fault as fault:
        same(
            {"error": "NUMA_NO_AFFINITY", "missing": [one for one in want["message_contains"] if one not in fault.cause]},
            _missing_none(want),
        )


def _check_converted(given: dict[str, Any], want: dict[str, Any], _host_of_file: numa.HostNuma) -> None:
    """Render a whole domain and compare what is asked of its controllers."""
    host = _host(given.get("sysfs_numa_node", _NODES), given.get("node_cpulist", _CPUS))
    found = controllers(domain(given, host))
    buses = [one for one in found if one["model"] == "pcie-expander-bus"]
    ports = [one for one in found if one["model"] == "pcie-root-port"]
    got: dict[str, Any] = {"pcie_expander_buses": len(buses), "pcie_root_ports": len(ports)}
    got["root_ports_on_expander_bus"] = {int(one["bus"], 0) for one in ports if "bus" in one} == {int(one["index"]) for one in buses}
    roots = [one for one in found if one["model"] == "pcie-root"]
    got["controller"] = {"type": "pci", **roots[0]} if roots else None
    same({key: got[key] for key in want}, want)


def _check_root_complex(given: dict[str, Any], want: dict[str, Any], _host_of_file: numa.HostNuma) -> None:
    devices = element("devices", {}, *(element("rng") for _number in range(given["root_complex_devices"])))
    got: dict[str, Any] = {}
    try:
        place_on_root_complex(devices)
    except Fault as fault:
        got = {"error": "ROOT_BUS_FULL", "message_contains": [one for one in want.get("message_contains", ()) if one in str(fault)]}
    got["slots_before_error" if got else "slots"] = [address.get("slot") for address in devices.iter("address")]
    same(got, want)


_CHECKS: dict[str, Callable[[dict[str, Any], dict[str, Any], numa.HostNuma], None]] = {
    "hostdevs": _check_placement,
    "lookup": _check_lookup,
    "vcpu_affinity_of": _check_affinity,
    "numa_node_of": _check_node,
    "root_complex_devices": _check_root_complex,
    "architecture": _check_converted,
}

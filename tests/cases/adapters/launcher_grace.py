"""Adapter of launcher-grace.json: a host's nodes and a guest's devices to the layout of Grace GPUs, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.bars import prefetchable_bytes
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest import grace
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.controllers import EXPANDER, ROOT, Controller
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import Hostdev, hostdev_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import numbers_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import GRACE, NUMA_TOPOLOGY
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.grace import grace_aliases, selectors_of
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

SECTIONS = ("cases",)
_WORDS = "10 to itself, 80 otherwise"
_ROW = re.compile(r"(\d+)->(\d+)(?:\.\.(\d+))? = (\d+)")
# our words of each kind of error; the order matters where one stands in another
_ERRORS = {
    "GRACE_NO_IOMMUFD": "requires an IOMMUFD file descriptor",
    "GRACE_NO_SMMUV3": "requires an arm-smmu-v3",
    "GRACE_ROOT_CONTROLLER": "requires the PCIe root controller at index 0|requires PCI controller index 0 to be pcie-root",
    "GRACE_PREFLIGHT": "GraceIOVirtualization requires",
    "GRACE_ALIAS_MISSING": "is not in the domain",
    "GRACE_NOT_PCI": "not pci",
    "GRACE_NO_SOURCE": "has no source address",
    "GRACE_GUEST_ADDRESS": "has a guest PCI address",
    "GRACE_WRONG_DEVICE": "no Grace GPU",
    "GRACE_NO_CELLS": "needs guest NUMA cells",
    "GRACE_NO_MEMNODES": "needs NUMA memnodes",
    "GRACE_CELL_UNMAPPED": "guest cell is mapped to no host node",
    "GRACE_AMBIGUOUS_NODE": "is ambiguous",
    "GRACE_GI_PARTIAL": "some but not all",
    "GRACE_GI_COUNT": "exactly 8 are needed",
    "GRACE_GI_SHARED": "are shared",
    "GRACE_GI_NOT_ENOUGH": "the host has",
    "GRACE_NODE_UNMAPPED": "is mapped to no guest cell",
    "GRACE_NO_BARS": "no 64-bit prefetchable BARs",
    "GRACE_HOLE_INVALID": "invalid Grace pcihole64 size|pcihole64 size overflows",
    "GRACE_HOLE_CONFLICT": "conflicts with disabled pcihole64",
}
_LAYOUT = {"cells", "memnodes", "smmuv3", "iommufd", "distances", "devices", "aliases", "gi_nodes", "gi_nodes_by_bdf", "controllers"}
_REFUSED = {"error", "message_contains"}
_Run = Callable[[Mapping[str, Any]], dict[str, Any]]


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per input; the keys of the input tell which function is asked."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        found = next(((run, values) for keys, values, run in _RUNS if given and set(given) <= keys), None)
        known = found is not None and bool(want) and (set(want) <= found[1] or set(want) <= _REFUSED)
        yield Case(case["id"], partial(_check, found[0], given, want) if found and known else None)


def _check(run: _Run, given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    try:
        got = run(given)
    except Fault as fault:
        kind = next((kind for kind, words in _ERRORS.items() if re.search(words, fault.cause)), "")
        missing = [text for text in want.get("message_contains", ()) if text not in str(fault)]
        same({"error": kind or str(fault), "missing": missing}, {"error": want.get("error"), "missing": []})
        return
    same({key: got.get(key) for key in want}, dict(want))


def _lay_out(given: Mapping[str, Any]) -> dict[str, Any]:
    devices = [_device(one, given) for one in given.get("devices", ())]
    cells = [_cell(one, given) for one in given.get("cells") or ()]
    aliases = given.get("aliases", [one.alias for one in devices])
    initiators = tuple(given.get("gi_nodes", ()))
    nodes = {node for cell in cells for node in cell.hosts} | set(initiators) | {node for one in devices for node in one.nodes}
    host = grace.GraceHost(bool(given["smmuv3"]), bool(given["iommufd"]), initiators, _distances(given.get("distances"), nodes))
    layout = grace.lay_out(aliases, devices, cells, host, [_controller(one) for one in given.get("controllers", ())])
    expanders = [one for one in layout.controllers if one.model == EXPANDER]
    first, new = layout.controllers[0], layout.cells[len(cells) :]
    unmapped = [cell.number for cell in layout.cells if not any(cell.number in pair for pair in layout.distances)]
    return {
        **_hostdevs(devices, layout),
        "iommu": [_iommu(bus) for bus in layout.iommus],
        "iommu_count": len(layout.iommus),
        "expander_buses": len(expanders),
        "pcihole64_kib": layout.hole_kib,
        "cells": len(layout.cells),
        "new_cell_memory_kib": next(iter({cell.memory for cell in new}), None),
        "distance": _shown(layout.distances, given),
        "cell_without_distances": ",".join(map(str, unmapped)),
        "first_controller": {
            "type": "pci",
            "index": str(first.index),
            "model": first.model,
            "pcihole64": {"unit": "KiB", "value": first.hole_kib},
        },
        "pcie_roots": sum(one.model == ROOT for one in layout.controllers),
    }


def _hostdevs(devices: Sequence[grace.GraceGpu], layout: grace.GraceLayout) -> dict[str, Any]:
    """Return what the <hostdev> elements say: the driver that all of them have, and each one's ACPI nodes by its alias."""
    plain = [Hostdev(one.alias, one.source) for one in devices if one.source]
    made = [hostdev_element(one) for one in grace.given_places(plain, layout)]
    drivers = [{str(key): str(value) for key, value in found.attrib.items()} for one in made for found in one.findall("driver")]
    nodesets = {str(name.get("name")).removeprefix("ua-"): str(found.get("nodeset")) for one in made for name, found in _both(one)}
    return {"driver": drivers[0] if drivers == drivers[:1] * len(made) else drivers, "acpi": nodesets}


def _both(hostdev: Any) -> Iterator[tuple[Any, Any]]:
    yield from zip(hostdev.findall("alias"), hostdev.findall("acpi"))


def _iommu(bus: int) -> dict[str, str]:
    made: Any = grace.iommu_element(bus)
    return {**made.attrib, **made.find("driver").attrib}


def _shown(distances: Mapping[tuple[int, int], int], given: Mapping[str, Any]) -> dict[str, int]:
    """Return the distances between the first of the guest's cells and the first that was added, as the cases do."""
    last = len(given.get("cells") or ())
    return {f"{one}->{two}": value for (one, two), value in distances.items() if {one, two} == {0, last}}


def _device(one: Mapping[str, Any], given: Mapping[str, Any]) -> grace.GraceGpu:
    bdf: Optional[str] = one.get("bdf")
    return grace.GraceGpu(
        alias=one["alias"],
        source=Address.parse(bdf) if bdf else None,
        kind=one.get("type", "pci"),
        vendor=one.get("vendor", ""),
        device=one.get("device", ""),
        node=one.get("numa_node", -1),
        bars=one.get("bar_bytes", 0),
        nodes=tuple(given.get("gi_nodes_by_bdf", {}).get(bdf, ())),
    )


def _cell(one: Mapping[str, Any], given: Mapping[str, Any]) -> grace.GraceCell:
    number = int(one["id"])
    hosts = [node for bound in given["memnodes"] or () if bound["cellid"] == number for node in numbers_of(bound["nodeset"]) or ()]
    return grace.GraceCell(number, one.get("cpus", ""), one.get("memory_kib"), tuple(hosts))


def _distances(told: Any, nodes: set[int]) -> dict[tuple[int, int], int]:
    made = {(one, two): 10 if one == two else 80 for one in nodes for two in nodes}
    for row in [] if told in (None, _WORDS) else told:
        first, begin, end, value = _ROW.fullmatch(row).groups()  # type: ignore[union-attr]
        made.update({(int(first), node): int(value) for node in range(int(begin), int(end or begin) + 1)})
    return made


def _controller(one: Mapping[str, Any]) -> Controller:
    """Return a controller; the root's index is 0 where it is not written, as for libvirt."""
    return Controller(int(one.get("index", 0)), one["model"], hole_kib=one.get("pcihole64"))


def _hole(given: Mapping[str, Any]) -> dict[str, Any]:
    root = [Controller(0, ROOT, hole_kib=given["root_pcihole64"])] if "root_pcihole64" in given else []
    size = grace.hole_kib(given["hole_bytes"])
    first = grace.with_hole([*root, *map(_controller, given.get("controllers", ()))], size)[0]
    return {"pcihole64_kib": first.hole_kib, "root_index": str(first.index)}


def _contribution(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"contribution_bytes": grace.contribution(given.get("vendor", "10de"), given["device"], given["bar_bytes"])}


def _preflight(given: Mapping[str, Any]) -> dict[str, Any]:
    asked = given["preflight"]
    gates = [name for name, key in ((GRACE, "gate"), (NUMA_TOPOLOGY, "numa_gate")) if asked[key]]
    grace.check_grace(gates, asked["arch"], asked["annotations"], iommufd=asked["iommufd"], dedicated=asked["dedicated"])
    return {"error": None}


def _aliases(given: Mapping[str, Any]) -> dict[str, Any]:
    devices = {key: given.get(key, []) for key in ("gpus", "hostDevices")}
    return {"aliases": grace_aliases(spec_of({"domain": {"devices": devices}}), selectors_of(given["permitted"]))}


# keys of the input, keys of an answer, what gives it
_RUNS: tuple[tuple[set[str], set[str], _Run], ...] = (
    ({"hole_bytes", "root_pcihole64", "controllers"}, {"pcihole64_kib", "root_index"}, _hole),
    ({"vendor", "device", "bar_bytes"}, {"contribution_bytes"}, _contribution),
    ({"resource_lines"}, {"bar_bytes"}, lambda given: {"bar_bytes": prefetchable_bytes(given["resource_lines"])}),
    ({"has_generic_initiator"}, {"gi_nodes"}, lambda given: {"gi_nodes": list(numbers_of(given["has_generic_initiator"]) or ())}),
    ({"preflight"}, {"error"}, _preflight),
    ({"permitted", "gpus", "hostDevices"}, {"aliases"}, _aliases),
    (
        _LAYOUT,
        {"driver", "acpi", "iommu", "iommu_count", "expander_buses", "pcihole64_kib", "cells", "new_cell_memory_kib", "distance"}
        | {"cell_without_distances", "first_controller", "pcie_roots"},
        _lay_out,
    ),
)

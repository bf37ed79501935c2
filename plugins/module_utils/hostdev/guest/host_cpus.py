"""The host as the launcher's pod sees it, for guests with CPUs of their own: which CPUs it may run on, and the NUMA nodes."""

from __future__ import annotations

import os
import re

from ..device.address import Address
from ..root import Root, entries, number_of, read_text
from .numa import HostNuma, numbers_of
from .topology import HostCpus

_NODE = re.compile(r"node([0-9]+)")


def read_host(root: Root) -> HostCpus:
    """Return what the kernel says now; a node or device that says nothing is left out."""
    cpus = {int(found[1]): numbers_of(_read(root, "devices/system/node", name, "cpulist")) for name, found in _nodes(root)}
    names = entries(root.sysfs("bus/pci/devices"))
    nodes = {name: number_of(_read(root, "bus/pci/devices", name, "numa_node")) for name in names}
    return HostCpus(
        tuple(sorted(os.sched_getaffinity(0))),
        HostNuma(
            {Address.parse(name): node for name, node in nodes.items() if node is not None and Address.find(name)},
            {node: found for node, found in cpus.items() if found},
        ),
    )


def _nodes(root: Root) -> list[tuple[str, re.Match[str]]]:
    found = [(name, _NODE.fullmatch(name)) for name in entries(root.sysfs("devices/system/node"))]
    return [(name, match) for name, match in found if match]


def _read(root: Root, *parts: str) -> str:
    return read_text(root.sysfs(*parts)) or ""

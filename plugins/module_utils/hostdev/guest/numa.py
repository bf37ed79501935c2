"""Which NUMA node of the guest a device of the host belongs to. No I/O: who can read the host says what is there.

KubeVirt's rules (pkg/util/hardware/hw_utils.go): what binds a guest's node to a host's comes first, then the CPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, Optional, Tuple

from ..device.address import Address
from ..device.faults import Absent

_SPAN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
# more CPUs or nodes than any machine has: a longer span is a mistake, and expensive
_LONGEST = 1 << 16


def numbers_of(text: str) -> Optional[Tuple[int, ...]]:
    """Return the numbers of a list such as "0-3,8", in its order; None for anything else."""
    made: List[int] = []
    for part in text.strip().split(","):
        found = _SPAN.fullmatch(part)
        if found is None:
            return None
        first = int(found[1])
        last = int(found[2] or first)
        if not first <= last < first + _LONGEST:
            return None
        made.extend(range(first, last + 1))
    return tuple(made)


@dataclass(frozen=True)
class HostNuma:
    """The host: nodes gives a device's node as sysfs has it, -1 for none, no key where it cannot be read; cpus each node's CPUs."""

    nodes: Mapping[Address, int] = field(default_factory=dict)
    cpus: Mapping[int, Tuple[int, ...]] = field(default_factory=dict)

    def node(self, device: Address) -> int:
        """Return a device's node; Absent when it has none or the host does not say."""
        found = self.nodes.get(device)
        if found is None or found < 0:
            cause = "failed to read host NUMA affinity" if found is None else "has no NUMA node affinity"
            raise Absent(what="find a device's NUMA node", subject=str(device), cause=cause)
        return found


@dataclass(frozen=True)
class Cell:
    """A NUMA node of the guest: its number, its vCPUs."""

    number: int
    cpus: FrozenSet[int]


@dataclass(frozen=True)
class Binding:
    """A guest's node whose memory comes from nodes of the host, as a list such as "0-1"."""

    cell: int
    nodes: str


@dataclass(frozen=True)
class GuestNuma:
    """The guest: its nodes, which CPUs of the host each vCPU may run on, and where the nodes' memory comes from."""

    cells: Tuple[Cell, ...] = ()
    pins: Mapping[int, Tuple[int, ...]] = field(default_factory=dict)
    bindings: Tuple[Binding, ...] = ()


@dataclass(frozen=True)
class Obstacle:
    """Why a device has no node, or, without a device, what is wrong with the guest's NUMA nodes."""

    device: Optional[Address]
    reason: str


@dataclass(frozen=True)
class Located:
    """Device -> node of the guest, and what stood in the way of the others."""

    cells: Mapping[Address, int]
    warnings: Tuple[Obstacle, ...] = ()

    def reasons(self, device: Address) -> str:
        """Return why a device has no node."""
        return "; ".join(one.reason for one in self.warnings if one.device == device) or "no guest NUMA node mapping is available"


def locate(devices: Sequence[Address], guest: GuestNuma, host: HostNuma) -> Located:
    """Return the guest's node of each device that has one."""
    if not guest.cells or not (guest.bindings or guest.pins):
        return Located({})
    bound, warnings = _bound_nodes(guest)
    found: Dict[Address, int] = {}
    for device in devices:
        try:
            node = host.node(device)
        except Absent as fault:
            warnings.append(Obstacle(device, fault.cause))
            continue
        cell = bound[node] if node in bound else _cell_of_cpus(host.cpus.get(node, ()), guest)
        if cell is None:
            warnings.append(Obstacle(device, f"host NUMA node {node} cannot be mapped to a guest NUMA cell"))
        else:
            found[device] = cell
    return Located(found, tuple(warnings))


def _bound_nodes(guest: GuestNuma) -> Tuple[Dict[int, int], List[Obstacle]]:
    known = {cell.number for cell in guest.cells}
    cells: Dict[int, List[int]] = {}
    warnings: List[Obstacle] = []
    for binding in guest.bindings:
        nodes = numbers_of(binding.nodes)
        if binding.cell not in known:
            warnings.append(Obstacle(None, f"memory is bound for guest NUMA cell {binding.cell}, which is none"))
        elif nodes is None:
            warnings.append(Obstacle(None, f"guest NUMA cell {binding.cell} has an invalid list of host nodes, {binding.nodes!r}"))
        else:
            for node in nodes:
                cells.setdefault(node, []).append(binding.cell)
    for node, several in sorted(cells.items()):
        if len(set(several)) > 1:
            warnings.append(Obstacle(None, f"host NUMA node {node} is mapped to multiple guest NUMA cells"))
    return {node: several[0] for node, several in cells.items() if len(set(several)) == 1}, warnings


def _cell_of_cpus(cpus: Sequence[int], guest: GuestNuma) -> Optional[int]:
    cells = {vcpu: cell.number for cell in guest.cells for vcpu in cell.cpus}
    return next((cells[vcpu] for vcpu in _pinned(cpus, guest) if vcpu in cells), None)


def _pinned(cpus: Sequence[int], guest: GuestNuma) -> List[int]:
    """Return the vCPUs that run on these CPUs, in the order of the CPUs."""
    owners = {cpu: vcpu for vcpu, several in guest.pins.items() for cpu in several}
    return [owners[cpu] for cpu in cpus if cpu in owners]


def aligned_vcpus(device: Address, guest: GuestNuma, host: HostNuma) -> Tuple[int, ...]:
    """Return the vCPUs that run on CPUs of a device's node, in the order of the CPUs; Absent when the device has no node."""
    return tuple(dict.fromkeys(_pinned(host.cpus.get(host.node(device), ()), guest)))

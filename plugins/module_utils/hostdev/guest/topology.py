"""CPUs and NUMA nodes of a guest with dedicated CPUs: which CPU of the host each vCPU has, and the guest's nodes.

KubeVirt's rules (pkg/virt-launcher/virtwrap/converter/vcpu). No I/O: the launcher says which CPUs it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from ..device.faults import Refused
from ..vmi.domain import Domain
from .memory import Node, split_memory
from .numa import Binding, Cell, GuestNuma, HostNuma

_WHAT = "give the guest CPUs of its own"
_STATIC = "the node's kubelet has to run with cpuManagerPolicy static, and the pod has to be of the class Guaranteed"


@dataclass(frozen=True)
class HostCpus:
    """The host as the launcher sees it: the CPUs that it may run on, ascending, and the NUMA nodes."""

    allowed: Tuple[int, ...] = ()
    numa: HostNuma = field(default_factory=HostNuma)


@dataclass(frozen=True)
class Topology:
    """Host's CPU of each vCPU, those of QEMU's other threads (empty: any), the guest's NUMA nodes, and bytes of a huge page."""

    pins: Tuple[int, ...] = ()
    emulator: Tuple[int, ...] = ()
    nodes: Tuple[Node, ...] = ()
    page: int = 0

    def as_numa(self) -> GuestNuma:
        """Return what placing devices needs to know of it."""
        return GuestNuma(
            cells=tuple(Cell(number, frozenset(node.cpus)) for number, node in enumerate(self.nodes)),
            pins={vcpu: (cpu,) for vcpu, cpu in enumerate(self.pins)},
            bindings=tuple(Binding(number, str(node.host)) for number, node in enumerate(self.nodes) if node.host is not None),
        )


def topology_of(domain: Domain, host: HostCpus) -> Topology:
    """Return the guest's topology; Refused when the pod has too few CPUs, or the memory does not divide among the nodes."""
    memory = domain.guest_memory
    size = 0 if memory is None else memory.ceil()
    page = _page(domain)
    pins, emulator = _pins(domain, host.allowed) if domain.cpu.dedicated else ((), ())
    nodes = _mapped(pins, size, page, host.numa) if domain.cpu.guest_mapping else ()
    # memory by memfd needs a node to belong to
    return Topology(pins, emulator, nodes or ((Node(tuple(range(domain.cpus)), size),) if page else ()), page)


def _page(domain: Domain) -> int:
    pages = domain.memory.hugepages
    return 0 if pages is None or pages.page_size is None else pages.page_size.ceil()


def _pins(domain: Domain, allowed: Sequence[int]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    needed = domain.cpus + int(domain.cpu.isolate_emulator)
    if len(allowed) < needed:
        cause = f"the guest needs {needed} CPUs, the pod has {len(allowed)}"
        raise Refused(what=_WHAT, subject="spec.domain.cpu.dedicatedCpuPlacement", cause=cause, hint=_STATIC)
    return tuple(allowed[: domain.cpus]), tuple(allowed[domain.cpus : needed])


def _mapped(pins: Sequence[int], memory: int, page: int, host: HostNuma) -> Tuple[Node, ...]:
    homes = {cpu: node for node, cpus in host.cpus.items() for cpu in cpus}
    by_home: Dict[int, List[int]] = {}
    for vcpu, cpu in enumerate(pins):
        home: Optional[int] = homes.get(cpu)
        if home is None:
            # a host that tells nothing of its nodes changes nothing
            return ()
        by_home.setdefault(home, []).append(vcpu)
    hosts = sorted(by_home)
    return tuple(Node(tuple(by_home[home]), size, home) for home, size in zip(hosts, split_memory(memory, page, hosts)))

"""Memory of the guest: what backs it, and its NUMA nodes.

Devices write to all of it, so all of it is locked: by the memory-lock limit that the grant raises, not by <locked/>, for
which libvirt's session would want to raise limits by itself (KubeVirt writes none either).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Tuple

from ..device.faults import Refused
from .elements import element

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_WHAT = "give the guest its NUMA nodes"


@dataclass(frozen=True)
class Node:
    """A NUMA node of the guest: its vCPUs, its bytes, and the host's node from which they come (None: from any)."""

    cpus: Tuple[int, ...]
    memory: int
    host: Optional[int] = None


def split_memory(memory: int, page: int, hosts: Sequence[int]) -> Tuple[int, ...]:
    """Return the bytes of each node, whole pages, the first nodes one page more where they do not divide (KubeVirt's split).

    Refused: no huge pages (page 0), memory that is not whole pages, less than a page for each node.
    """
    problem = ""
    if page <= 0:
        problem = "numa.guestMappingPassthrough needs memory.hugepages"
    elif memory % page:
        problem = f"{memory} bytes are not whole pages of {page}"
    elif memory // page < len(hosts):
        problem = f"{memory // page} pages are less than one for each of {len(hosts)} nodes"
    if problem:
        raise Refused(what=_WHAT, subject="spec.domain.memory", cause=problem)
    pages, rest = divmod(memory // page, len(hosts))
    return tuple((pages + (number < rest)) * page for number in range(len(hosts)))


def backing_element(page: int, nodes: Sequence[Node] = (), *, memfd: bool = True, shared: bool = False) -> Optional[Element]:
    """Return <memoryBacking>, or None where there is nothing to say.

    page: bytes of a huge page, 0 for none. nodes: of the guest, bound to the host's. memfd: unless annotation
    kubevirt.io/memfd forbids it. shared: another process maps the memory too.
    """
    if not page and not shared:
        return None
    bound = [number for number, node in enumerate(nodes) if node.host is not None]
    pages = [element("page", {"size": page, "unit": "b", "nodeset": number}) for number in bound]
    plain = [element("page", {"size": page, "unit": "b"})] if page and not bound else []
    return element(
        "memoryBacking",
        {},
        element("hugepages", {}, *(pages or plain)) if page else None,
        element("source", {"type": "memfd"}) if memfd or shared else None,
        element("access", {"mode": "shared"}) if shared else None,
        element("allocation", {"mode": "immediate"}) if bound else None,
    )


def nodes_element(nodes: Sequence[Node]) -> Optional[Element]:
    """Return <numa> of <cpu>, None without nodes."""
    if not nodes:
        return None
    cells = (
        element("cell", {"id": number, "cpus": ",".join(map(str, node.cpus)), "memory": node.memory, "unit": "b"})
        for number, node in enumerate(nodes)
    )
    return element("numa", {}, *cells)


def tune_element(nodes: Sequence[Node]) -> Optional[Element]:
    """Return <numatune>, None where no node is bound to one of the host's."""
    hosts = sorted({node.host for node in nodes if node.host is not None})
    if not hosts:
        return None
    bound = [(number, node.host) for number, node in enumerate(nodes) if node.host is not None]
    return element(
        "numatune",
        {},
        element("memory", {"mode": "strict", "nodeset": ",".join(map(str, hosts))}),
        *(element("memnode", {"cellid": number, "mode": "strict", "nodeset": host}) for number, host in bound),
    )


def pins_element(pins: Sequence[int], emulator: Sequence[int] = ()) -> Optional[Element]:
    """Return <cputune>: vCPU i on the host's CPU pins[i], QEMU's other threads on `emulator`; None without pins."""
    if not pins:
        return None
    threads = element("emulatorpin", {"cpuset": ",".join(map(str, emulator))}) if emulator else None
    return element("cputune", {}, *(element("vcpupin", {"vcpu": vcpu, "cpuset": cpu}) for vcpu, cpu in enumerate(pins)), threads)

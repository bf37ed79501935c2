"""NVIDIA Grace GPUs in a guest: what has to hold, and the layout that they need. No I/O: who can read the host says what is there.

KubeVirt 1.9, pkg/virt-launcher/virtwrap/converter/grace.go: each GPU has an expander bus, a root port and an IOMMU for itself,
eight NUMA nodes without memory that its driver fills, and room for its BARs in the root's 64-bit hole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from ..device.address import Address
from ..device.faults import Fault, Refused
from ..vmi import gates as gate
from ..vmi.grace import DEVICES, VENDOR
from .controllers import EXPANDER, ROOT, ROOT_PORT, Controller
from .elements import element
from .hostdev import GuestPlace, Hostdev

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

ANNOTATIONS: Mapping[str, str] = {
    "kubevirt.io/disablePCIHole64": "the 64-bit PCI hole",
    "kubevirt.io/placePCIDevicesOnRootComplex": "that devices are not placed by root-complex annotation",
}
IOMMU: Mapping[str, str] = {"accel": "on", "ats": "on", "ril": "off", "ssidsize": "20", "oas": "48"}
"""Attributes of the <driver> of an <iommu model="smmuv3">, beside pciBus; libvirt's spelling, not KubeVirt's ssidSize."""

NODES = 8
_FLOOR = 512 * 1024**3
_LARGEST_HOLE = 16 * 1024**4
_SPARE_KIB = 1024**2
_LAST_ADDRESS = 2**64 - 1
_HIGHEST_BUS = 255
_OWN_DISTANCE, _NEAREST_OTHER = 10, 11


@dataclass(frozen=True)
class GraceGpu:
    """A device that has to be such a GPU. source: None when its hostdev names none; placed: it has a guest's address already.

    node: of the host, -1 for none. bars: bytes of its 64-bit prefetchable memory. nodes: the host's generic initiators that name it.
    """

    alias: str
    source: Optional[Address] = None
    kind: str = "pci"
    placed: bool = False
    vendor: str = ""
    device: str = ""
    node: int = -1
    bars: int = 0
    nodes: Tuple[int, ...] = ()


@dataclass(frozen=True)
class GraceCell:
    """A NUMA node of the guest. hosts: the nodes of the host that its memory comes from; memory: KiB, None for unsaid."""

    number: int
    cpus: str = ""
    memory: Optional[int] = None
    hosts: Tuple[int, ...] = ()


@dataclass(frozen=True)
class GraceHost:
    """What the host has: an SMMUv3, generic initiators, distances between its nodes; iommufd: whether the launcher got it."""

    smmuv3: bool
    iommufd: bool
    initiators: Tuple[int, ...] = ()
    distances: Mapping[Tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class GraceLayout:
    """The layout. nodesets: alias -> its nodes, as "1-8". places: alias -> root port's bus. iommus: indexes of expander buses.

    distances: between the guest's nodes, for each that is one of the host's.
    """

    nodesets: Mapping[str, str]
    places: Mapping[str, int]
    iommus: Tuple[int, ...]
    controllers: Tuple[Controller, ...]
    cells: Tuple[GraceCell, ...]
    distances: Mapping[Tuple[int, int], int]
    hole_kib: int


def given_places(devices: Sequence[Hostdev], layout: GraceLayout) -> Tuple[Hostdev, ...]:
    """Return the devices, each GPU of the layout with its root port and its nodes, and by iommufd."""
    return tuple(
        replace(one, iommufd=True, nodeset=layout.nodesets[one.alias], guest=GuestPlace(Address(0, layout.places[one.alias], 0, 0)))
        if one.alias in layout.nodesets
        else one
        for one in devices
    )


def iommu_element(bus: int) -> Element:
    """Return the <iommu> behind an expander bus, by the bus's controller index."""
    return element("iommu", {"model": "smmuv3"}, element("driver", {"pciBus": bus, **IOMMU}))


def _refuse(subject: str, cause: str, hint: str = "") -> Refused:
    return Refused(what="give a guest NVIDIA Grace GPUs", subject=subject, cause=cause, hint=hint)


def check_grace(gates: Collection[str], architecture: str, annotations: Mapping[str, str], *, iommufd: bool, dedicated: bool) -> None:
    """Raise Refused for the first thing that such a guest lacks, before anything of its domain is touched."""
    wants = (
        (gate.GRACE in gates, f"feature gate {gate.GRACE}"),
        (gate.NUMA_TOPOLOGY in gates, f"feature gate {gate.NUMA_TOPOLOGY}"),
        (iommufd, "an IOMMUFD file descriptor"),
        (dedicated, "dedicated CPUs"),
        (architecture == "arm64", "an architecture with its PCI Express layout, arm64"),
        *((annotations.get(name) != "true", what) for name, what in ANNOTATIONS.items()),
    )
    for holds, what in wants:
        if not holds:
            raise _refuse("the guest", f"{gate.GRACE} requires {what}")


def contribution(vendor: str, device: str, bars: int) -> int:
    """Return the bytes that a device takes of the hole: its BARs, for a Grace GPU at least 512 GiB."""
    return max(bars, _FLOOR) if vendor.lower() == VENDOR and device.lower() in DEVICES else bars


def hole_kib(size: int) -> int:
    """Return the hole in KiB for so many bytes of BARs: a power of two with 1 GiB to spare; Refused over 16 TiB."""
    if size > _LAST_ADDRESS:
        raise _refuse(f"{size} bytes of BARs", "pcihole64 size overflows 64 bits")
    made = 1 << (-(-size // 1024) + _SPARE_KIB - 1).bit_length()
    if made * 1024 > _LARGEST_HOLE:
        raise _refuse(f"{size} bytes of BARs", f"invalid Grace pcihole64 size {made} KiB: more than 16 TiB")
    return made


def with_hole(controllers: Sequence[Controller], size_kib: int) -> Tuple[Controller, ...]:
    """Return the controllers with a PCI Express root at index 0 that has the hole; Refused when something else is there."""
    for one in controllers:
        if one.model == ROOT and one.index:
            raise _refuse(f"controller {one.index}", "requires the PCIe root controller at index 0")
        if not one.index and one.model != ROOT:
            raise _refuse(f"controller {one.index}", f"requires PCI controller index 0 to be {ROOT}, it is {one.model}")
        if one.model == ROOT and one.hole_kib == 0:
            raise _refuse(f"controller {one.index}", f"{size_kib} KiB conflicts with disabled pcihole64")
    found = [one for one in controllers if one.model == ROOT] or [Controller(0, ROOT)]
    others = (one for one in controllers if one.model != ROOT)
    return (replace(found[0], hole_kib=size_kib), *others)


def lay_out(
    aliases: Collection[str],
    devices: Sequence[GraceGpu],
    cells: Sequence[GraceCell],
    host: GraceHost,
    controllers: Sequence[Controller] = (),
) -> GraceLayout:
    """Return the layout for the GPUs of these aliases; Refused with the first thing that does not fit, by alias where one is meant."""
    if not host.iommufd:
        raise _refuse("the guest", f"{gate.GRACE} requires an IOMMUFD file descriptor")
    if not host.smmuv3:
        raise _refuse("the host", f"{gate.GRACE} requires an arm-smmu-v3 below /sys/class/iommu")
    gpus = [_found(alias, devices) for alias in sorted(aliases)]
    by_node = _cells_by_node(cells)
    initiators = _initiators(gpus, host)
    hole = hole_kib(sum(_room(gpu, by_node) for gpu in gpus))
    made = _Making(list(cells), list(with_hole(controllers, hole)))
    for gpu, nodes in zip(gpus, initiators):
        made.add(gpu, nodes, by_node[gpu.node])
    distances = _distances(made.cells, host.distances)
    return GraceLayout(made.nodesets, made.places, tuple(made.iommus), tuple(made.controllers), tuple(made.cells), distances, hole)


def _found(alias: str, devices: Sequence[GraceGpu]) -> GraceGpu:
    found = next((one for one in devices if one.alias == alias), None)
    if found is None:
        raise _refuse(alias, f"Grace host device {alias} is not in the domain")
    wrong = (
        (found.kind != "pci", f"is of type {found.kind}, not pci"),
        (found.source is None, "has no source address"),
        (found.placed, "has a guest PCI address already"),
        (found.vendor.lower() != VENDOR or found.device.lower() not in DEVICES, f"is {found.vendor}:{found.device}, no Grace GPU"),
    )
    for holds, cause in wrong:
        if holds:
            raise _refuse(alias, f"Grace host device {alias} {cause}")
    return found


def _cells_by_node(cells: Sequence[GraceCell]) -> Dict[int, int]:
    """Return the guest's node of each node of the host; every one that has CPUs or memory is one of the host's."""
    if not cells:
        raise _refuse("the guest", "Grace needs guest NUMA cells", "set cpu.numa.guestMappingPassthrough and huge pages")
    if not any(cell.hosts for cell in cells):
        raise _refuse("the guest", "Grace needs NUMA memnodes", "set cpu.numa.guestMappingPassthrough and huge pages")
    found: Dict[int, int] = {}
    for cell in cells:
        if not cell.hosts and (cell.cpus or cell.memory != 0):
            raise _refuse(f"cell {cell.number}", "Grace guest cell is mapped to no host node")
        if len(cell.hosts) > 1:
            raise _refuse(f"cell {cell.number}", "Grace memnode names more than one host node")
        for node in cell.hosts:
            other = found.setdefault(node, cell.number)
            if other != cell.number:
                raise _refuse(f"cells {other} and {cell.number}", f"Grace host node {node} is ambiguous: two guest cells are mapped to it")
    return found


def _initiators(gpus: Sequence[GraceGpu], host: GraceHost) -> List[Tuple[int, ...]]:
    """Return eight nodes of the host for each GPU: those that name it, or where none names any, the next eight."""
    named = [gpu for gpu in gpus if gpu.nodes]
    if not named:
        if len(host.initiators) < NODES * len(gpus):
            cause = f"Grace needs {NODES} generic initiator nodes per GPU, {NODES * len(gpus)} in all; the host has {len(host.initiators)}"
            raise _refuse("the host", cause)
        return [tuple(host.initiators[start : start + NODES]) for start in range(0, NODES * len(gpus), NODES)]
    if len(named) < len(gpus):
        raise _refuse("the host", "Grace generic initiator nodes name some but not all of the GPUs")
    for gpu in gpus:
        if len(gpu.nodes) != NODES:
            raise _refuse(gpu.alias, f"Grace GPU has {len(gpu.nodes)} generic initiator nodes, exactly {NODES} are needed")
    if len({node for gpu in gpus for node in gpu.nodes}) < NODES * len(gpus):
        raise _refuse("the host", "Grace generic initiator nodes are shared by several GPUs")
    return [gpu.nodes for gpu in gpus]


def _room(gpu: GraceGpu, by_node: Mapping[int, int]) -> int:
    if gpu.node not in by_node:
        raise _refuse(gpu.alias, f"Grace GPU's host node {gpu.node} is mapped to no guest cell")
    if not gpu.bars:
        raise _refuse(gpu.alias, "Grace GPU has no 64-bit prefetchable BARs")
    return contribution(gpu.vendor, gpu.device, gpu.bars)


class _Making:
    """A layout in the making: nodes and controllers with one GPU after the other."""

    def __init__(self, cells: List[GraceCell], controllers: List[Controller]) -> None:
        self.cells, self.controllers = cells, controllers
        self.nodesets: Dict[str, str] = {}
        self.places: Dict[str, int] = {}
        self.iommus: List[int] = []
        self._created = 0

    def add(self, gpu: GraceGpu, nodes: Sequence[int], cell: int) -> None:
        """Add the nodes, the expander bus and the root port of a GPU that belongs to a cell."""
        first = max(one.number for one in self.cells) + 1
        self.cells += [GraceCell(first + place, memory=0, hosts=(node,)) for place, node in enumerate(nodes)]
        self.nodesets[gpu.alias] = f"{first}-{first + NODES - 1}"
        bus = max(one.index for one in self.controllers) + 1
        self._created += 2
        number = _HIGHEST_BUS - self._created + 1
        if bus + 1 >= number:
            raise _refuse(gpu.alias, f"insufficient bus numbers: current controller index {bus}, expander bus number {number}")
        port = Controller(bus + 1, ROOT_PORT, place=GuestPlace(Address(0, bus, 0, 0)))
        self.controllers += [Controller(bus, EXPANDER, bus_number=number, node=cell), port]
        self.places[gpu.alias] = bus + 1
        self.iommus.append(bus)


def _distances(cells: Sequence[GraceCell], host: Mapping[Tuple[int, int], int]) -> Dict[Tuple[int, int], int]:
    """Return the distances between the guest's nodes; to another node it is never that to the node itself (libvirt refuses 10)."""
    mapped = [(cell.number, cell.hosts[0]) for cell in cells if cell.hosts]
    found: Dict[Tuple[int, int], int] = {}
    for one, from_node in mapped:
        for two, to_node in mapped:
            if one == two:
                found[one, two] = _OWN_DISTANCE
                continue
            distance = host.get((from_node, to_node))
            if distance is None:
                raise Fault(what="read NUMA distances", subject=f"nodes {from_node} and {to_node}", cause="the host does not tell one")
            found[one, two] = max(distance, _NEAREST_OTHER)
    return found

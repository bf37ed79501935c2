"""Grace GPUs: what the case files do not ask."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.controllers import EXPANDER, ROOT_PORT, Controller
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.grace import (
    GraceCell,
    GraceGpu,
    GraceHost,
    GraceLayout,
    check_grace,
    given_places,
    lay_out,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import Hostdev
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import GRACE, NUMA_TOPOLOGY

GPU = GraceGpu("gpu-a", Address.parse("0000:81:00.0"), vendor="10DE", device="2941", node=0, bars=1 << 34)
CELL = GraceCell(0, "0-1", 1024, (0,))
NODES = tuple(range(2, 10))
DISTANCES = {(one, two): 10 for one in (0, *NODES) for two in (0, *NODES)}
HOST = GraceHost(smmuv3=True, iommufd=True, initiators=NODES, distances=DISTANCES)


def made(gpu: GraceGpu = GPU, cell: GraceCell = CELL, host: GraceHost = HOST) -> GraceLayout:
    return lay_out([gpu.alias], [gpu], [cell], host)


def test_controllers_follow_what_is_there_and_the_gpu_stands_on_its_own_port() -> None:
    layout = lay_out(["gpu-a"], [GPU], [CELL], HOST, [Controller(0, "pcie-root"), Controller(4, ROOT_PORT)])
    assert [(one.index, one.model, one.node) for one in layout.controllers[2:]] == [(5, EXPANDER, 0), (6, ROOT_PORT, None)]
    other = Hostdev("gpu-b", Address.parse("0000:82:00.0"))
    moved, kept = given_places([Hostdev("gpu-a", Address.parse("0000:81:00.0")), other], layout)
    assert (moved.iommufd, moved.nodeset, moved.guest and moved.guest.address) == (True, "1-8", Address(0, 6, 0, 0))
    assert kept == other


def test_another_node_is_never_as_near_as_the_node_itself() -> None:
    distances = made().distances
    assert (distances[0, 0], distances[0, 1], distances[1, 2]) == (10, 11, 11)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (replace(GPU, kind="mdev"), "is of type mdev, not pci"),
        (replace(GPU, placed=True), "has a guest PCI address already"),
        (replace(GPU, node=5), "host node 5 is mapped to no guest cell"),
        (replace(GPU, nodes=NODES[:7]), "has 7 generic initiator nodes, exactly 8 are needed"),
        (replace(GPU, nodes=(2,) * 8), "are shared by several GPUs"),
    ],
)
def test_a_gpu_that_does_not_fit_is_refused(gpu: GraceGpu, said: str) -> None:
    with pytest.raises(Refused, match=said):
        made(gpu)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (replace(CELL, hosts=()), "needs NUMA memnodes"),
        (replace(CELL, hosts=(0, 1)), "names more than one host node"),
    ],
)
def test_a_cell_that_does_not_fit_is_refused(cell: GraceCell, said: str) -> None:
    with pytest.raises(Refused, match=said):
        made(cell=cell)


def test_a_cell_with_cpus_belongs_to_the_host() -> None:
    with pytest.raises(Refused, match="guest cell is mapped to no host node"):
        lay_out(["gpu-a"], [GPU], [CELL, GraceCell(1, "2-3", 1024)], HOST)


def test_unknown_distances_are_a_fault() -> None:
    with pytest.raises(Fault, match="nodes 0 and 2"):
        made(host=replace(HOST, distances={}))


@pytest.mark.parametrize(
    ("gates", "architecture", "dedicated", "said"),
    [
        ([NUMA_TOPOLOGY], "arm64", True, "feature gate GraceIOVirtualization"),
        ([GRACE], "arm64", True, "feature gate PCINUMAAwareTopology"),
        ([GRACE, NUMA_TOPOLOGY], "arm64", False, "dedicated CPUs"),
        ([GRACE, NUMA_TOPOLOGY], "amd64", True, "arm64"),
    ],
)
def test_what_the_guest_lacks_is_named_first(gates: list[str], architecture: str, dedicated: bool, said: str) -> None:
    check_grace([GRACE, NUMA_TOPOLOGY], "arm64", {}, iommufd=True, dedicated=True)
    with pytest.raises(Refused, match=said):
        check_grace(gates, architecture, {}, iommufd=True, dedicated=dedicated)

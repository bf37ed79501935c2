"""CPUs, NUMA nodes, memory and what newer libvirts take, in whole domains that libvirt's schema accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.newer import refuse_newer, version_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import HostNuma
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sriov import NetworkAddresses
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.topology import HostCpus
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of
from lxml import etree

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
MIB = 1024**2
GPUS = [{"name": "a", "deviceName": "x.io/p"}, {"name": "b", "deviceName": "x.io/p"}]
ENVIRONMENT = {"PCI_RESOURCE_X_IO_P": "0000:01:00.0,0000:81:00.0", "HOSTDEV_COMPANIONS_X_IO_P": "0000:81:00.0=0000:81:00.1"}
NODES = {Address.parse("0000:01:00.0"): 0, Address.parse("0000:81:00.0"): 1}
HOST = HostCpus((2, 3, 10, 11), HostNuma(NODES, {0: tuple(range(8)), 1: tuple(range(8, 16))}))


def domain(settings: DomainSettings, *, annotations: dict[str, str] | None = None, **given: Any) -> Any:
    spec = spec_of({"domain": {"devices": {"gpus": GPUS}, "memory": {"guest": "1Gi"}, **given}})
    vmi = VirtualMachineInstance(Metadata(name="guest", annotations=annotations or {}), spec)
    root = etree.fromstring(render(vmi, ENVIRONMENT, settings))
    schema = etree.RelaxNG(etree.parse(SCHEMA))
    assert schema.validate(root), schema.error_log
    return root


MAPPED: dict[str, Any] = {
    "cpu": {"cores": 3, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True, "numa": {"guestMappingPassthrough": {}}},
    "memory": {"guest": "1026Mi", "hugepages": {"pageSize": "2Mi"}},
}


def test_a_mapped_guest_has_its_nodes_and_devices_there() -> None:
    root = domain(DomainSettings(host=HOST, by_numa=True), **MAPPED)
    assert [(one.get("vcpu"), one.get("cpuset")) for one in root.findall("cputune/vcpupin")] == [("0", "2"), ("1", "3"), ("2", "10")]
    assert root.xpath("cputune/emulatorpin/@cpuset") == ["11"]
    assert [(one.get("cpus"), int(one.get("memory"))) for one in root.findall("cpu/numa/cell")] == [("0,1", 514 * MIB), ("2", 512 * MIB)]
    assert root.xpath("numatune/memory/@nodeset | numatune/memnode/@nodeset") == ["0,1", "0", "1"]
    assert root.xpath("memoryBacking/hugepages/page/@nodeset") == ["0", "1"]
    assert root.xpath("memoryBacking/allocation/@mode") == ["immediate"]
    assert root.xpath("devices/controller[@model='pcie-expander-bus']/target/node/text()") == ["0", "1"]
    # the device of two functions has left the root port that was kept for it
    assert root.xpath("devices/hostdev/address/@bus") == ["0x03", "0x05", "0x05"]
    assert "1" not in root.xpath("devices/controller[@type='pci']/@index")


def test_dedicated_cpus_alone() -> None:
    root = domain(DomainSettings(host=HOST), cpu={"cores": 2, "dedicatedCpuPlacement": True})
    assert root.xpath("cputune/vcpupin/@cpuset") == ["2", "3"]
    assert not root.xpath("cpu/numa | numatune | memoryBacking | devices/controller[@model='pcie-expander-bus']")


def test_huge_pages_alone() -> None:
    pages = {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}
    root = domain(DomainSettings(), memory=pages)
    assert root.xpath("memoryBacking/hugepages/page/@size") == [str(2 * MIB)]
    assert root.xpath("memoryBacking/source/@type | cpu/numa/cell/@memory") == ["memfd", str(1024 * MIB)]
    assert not root.xpath("memoryBacking/allocation | numatune")
    assert not domain(DomainSettings(), annotations={"kubevirt.io/memfd": "false"}, memory=pages).xpath("memoryBacking/source")


def test_memory_is_locked_from_outside() -> None:
    assert not domain(DomainSettings(host=HOST, by_numa=True), **MAPPED).xpath("memoryBacking/locked | memtune")


@pytest.mark.parametrize(
    ("given", "allowed", "said"),
    [
        ({"cpu": {"cores": 3, "dedicatedCpuPlacement": True}}, 2, "the guest needs 3 CPUs, the pod has 2"),
        ({"cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}}, 2, "the guest needs 3 CPUs"),
        ({**MAPPED, "memory": {"guest": "1Gi"}}, 4, "needs memory.hugepages"),
        ({**MAPPED, "memory": {"guest": "1025Mi", "hugepages": {"pageSize": "2Mi"}}}, 4, "are not whole pages"),
        ({**MAPPED, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}}, 4, "1 pages are less than one for each of 2 nodes"),
    ],
)
def test_refused(given: dict[str, Any], allowed: int, said: str) -> None:
    with pytest.raises(Refused, match=said):
        domain(DomainSettings(host=replace(HOST, allowed=HOST.allowed[:allowed])), **given)


def test_a_host_that_tells_nothing_of_its_nodes_changes_nothing() -> None:
    root = domain(DomainSettings(host=replace(HOST, numa=HostNuma())), **MAPPED)
    assert root.xpath("cpu/numa/cell/@cpus") == ["0,1,2"]
    assert not root.xpath("numatune")


def test_all_devices_on_the_root_complex() -> None:
    root = domain(DomainSettings(), annotations={"kubevirt.io/placePCIDevicesOnRootComplex": "true"})
    places = [(one.get("bus"), one.get("slot"), one.get("function")) for one in root.findall("devices/hostdev/address")]
    assert places == [("0x00", "0x02", "0x0"), ("0x01", "0x00", "0x0"), ("0x01", "0x00", "0x1")]
    assert root.xpath("devices/controller[@model='pcie-root-port']/address/@slot") == ["0x03"]


SRIOV: dict[str, Any] = {
    "devices": {"gpus": GPUS, "interfaces": [{"name": "n", "sriov": {}, "pciAddress": "0000:01:00.0", "bootOrder": 1}]},
}


def test_virtual_functions_come_last_and_keep_their_place() -> None:
    root = domain(DomainSettings(networks=NetworkAddresses("f", {"n": "0000:65:0a.3"})), **SRIOV)
    assert root.xpath("devices/hostdev/alias/@name") == ["ua-gpu-a", "ua-gpu-b", "ua-gpu-b-f1", "ua-sriov-n"]
    assert root.xpath("devices/hostdev[last()]/boot/@order") == ["1"]
    assert root.xpath("devices/hostdev/address/@bus") == ["0x02", "0x02", "0x01"]


def test_a_function_that_is_also_a_device_is_refused() -> None:
    with pytest.raises(Refused, match="0000:01:00.0: gpu-a and sriov-n would both get it"):
        domain(DomainSettings(networks=NetworkAddresses("f", {"n": "0000:01:00.0"})), **SRIOV)


def test_outside_the_pod_nobody_knows_the_functions() -> None:
    with pytest.raises(Absent, match=r"spec\.domain\.devices\.interfaces\[0\]: .* known in the launcher's pod alone"):
        domain(DomainSettings(), **SRIOV)


@pytest.mark.parametrize(
    ("xml", "name", "oldest"),
    [
        ("<domain><devices><hostdev type='pci' display='on'/></devices></domain>", "display or ramfb of a PCI <hostdev>", 11_003_000),
        ("<domain><devices><hostdev><driver iommufd='yes'/></hostdev></devices></domain>", "attribute iommufd", 12_002_000),
        ("<domain><iommufd enabled='yes'/></domain>", "<iommufd>", 12_002_000),
        ("<domain><devices><hostdev><acpi nodeset='1-8'/></hostdev></devices></domain>", "<acpi nodeset>", 12_009_000),
        ("<domain><devices><iommu model='smmuv3'><driver/></iommu></devices></domain>", "smmuv3", 12_009_000),
    ],
)
def test_what_is_too_new_is_refused_by_its_name(xml: str, name: str, oldest: int) -> None:
    refuse_newer(xml, version_of(oldest))
    with pytest.raises(Unsupported) as caught:
        refuse_newer(xml, version_of(9_000_001))
    assert name in caught.value.subject
    assert caught.value.cause.endswith("running is 9.0.1")


def test_a_mediated_screen_is_old() -> None:
    refuse_newer("<domain><devices><hostdev type='mdev' display='on'/></devices></domain>", version_of(9_000_000))

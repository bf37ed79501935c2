"""What the container asks for: huge pages, dedicated CPUs, virtual functions, and the sentences of the case files."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.overhead import Sizing, overhead, vfio_count
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.resources import (
    GRANT,
    IOMMUFD,
    asked_resources,
    container_resources,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import open_gates
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

GPU = {"name": "g", "deviceName": "x.io/g"}
STICK = {"name": "u", "deviceName": "kubevirt.io/storage"}
GIB = 1024**3


def container(domain: dict[str, Any], **spec: Any) -> Any:
    return container_resources(spec_of({"domain": domain, **spec}), emulated=True)


def test_a_number_of_the_manifest_that_is_not_the_number_of_entries_is_refused_by_name() -> None:
    domain = {"devices": {"gpus": [GPU, {**GPU, "name": "h"}]}, "resources": {"limits": {"x.io/g": "1"}}}
    with pytest.raises(Refused) as caught:
        asked_resources(spec_of({"domain": domain}))
    assert "x.io/g" in caught.value.subject
    assert "is 1, but 2 entries" in caught.value.cause


def test_iommufd_comes_with_a_device_in_limits_and_requests() -> None:
    gates = open_gates(["IOMMUFD"])
    with_device = asked_resources(spec_of({"domain": {"devices": {"gpus": [GPU]}}}), gates)
    assert (with_device.limits[IOMMUFD], with_device.requests[IOMMUFD]) == ("1", "1")
    stick = spec_of({"domain": {"devices": {"hostDevices": [STICK]}}})
    assert IOMMUFD not in asked_resources(stick, gates, Sizing(unlocked=["kubevirt.io/storage"])).limits


def test_where_real_vfio_devices_alone_count_a_stick_costs_nothing() -> None:
    spec = spec_of({"domain": {"devices": {"hostDevices": [STICK]}, "resources": {"requests": {"memory": "1Gi"}}}})
    sizing = Sizing(unlocked=["kubevirt.io/storage"])
    assert (overhead(spec, sizing), vfio_count(spec, sizing)) == (283115520, 0)


def test_huge_pages_take_the_guests_memory_and_leave_the_overhead() -> None:
    memory = {"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}}
    made = container({"memory": memory})
    assert made["limits"]["hugepages-1Gi"] == made["requests"]["hugepages-1Gi"] == str(2 * GIB)
    assert int(made["requests"]["memory"]) < GIB
    assert "memory" not in made["limits"]
    more = container({"memory": memory, "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "4Gi"}}})
    assert more["requests"]["hugepages-1Gi"] == str(2 * GIB)
    assert int(more["limits"]["memory"]) - int(more["requests"]["memory"]) == GIB


@pytest.mark.parametrize(("cpu", "wanted"), [({}, "4"), ({"isolateEmulatorThread": True}, "5")])
def test_dedicated_cpus_are_whole_ones_of_a_guaranteed_pod(cpu: dict[str, Any], wanted: str) -> None:
    made = container({"cpu": {"cores": 4, "dedicatedCpuPlacement": True, **cpu}, "memory": {"guest": "1Gi"}})
    assert made["limits"]["cpu"] == made["requests"]["cpu"] == wanted
    assert made["limits"]["memory"] == made["requests"]["memory"]


def test_a_limit_stands_in_for_a_request() -> None:
    made = container({"memory": {"guest": "1Gi"}, "resources": {"limits": {"memory": "2Gi", "cpu": "3"}}})
    assert made["limits"] == {"memory": made["requests"]["memory"], "cpu": "3"}
    assert made["requests"]["cpu"] == "3"


def test_a_virtual_function_of_multus_asks_for_one_grant() -> None:
    networks = [{"name": name, "multus": {"networkName": name}} for name in ("a", "b")]
    made = container({"devices": {"interfaces": [{"name": name, "sriov": {}} for name in ("a", "b")]}}, networks=networks)
    assert made["limits"][GRANT] == made["requests"][GRANT] == "1"

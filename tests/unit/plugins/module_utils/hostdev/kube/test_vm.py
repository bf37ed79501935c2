"""A VM brought to its wished state, on a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy, Fault, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import vm
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, instance_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.cluster import FakeCluster, node

GPU = "nvidia.com/A10"
SETTINGS = PodSettings(image="x", emulated=True)
READY = {"status": {"phase": "Running", "containerStatuses": [{"name": "compute", "ready": True}]}}


def vmi(memory: str = "1Gi") -> Any:
    domain = {"devices": {"gpus": [{"name": "gpu1", "deviceName": GPU}]}, "memory": {"guest": memory}}
    return instance_of(
        parse_manifest(
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm1"}, "spec": {"domain": domain}}
        )
    )


def bring(cluster: FakeCluster, wanted: str, machine: Any) -> vm.Plan:
    pod = cluster.pod("default", "vm-vm1")
    todo = vm.plan(wanted, machine, SETTINGS, pod)
    vm.apply(cluster, todo, machine, SETTINGS)
    return todo


def test_create_is_idempotent_and_the_config_map_is_the_pods() -> None:
    cluster = FakeCluster()
    assert bring(cluster, "present", vmi()).action == "create"
    (owner,) = cluster.config_maps["default/vm-vm1"]["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.pod_list["default/vm-vm1"]["metadata"]["uid"]
    again = bring(cluster, "present", vmi())
    assert (again.action, again.stale) == ("none", False)


def test_another_definition_is_told_and_touches_nothing() -> None:
    cluster = FakeCluster()
    bring(cluster, "present", vmi())
    before = dict(cluster.pod_list)
    changed = bring(cluster, "present", vmi("2Gi"))
    assert (changed.action, changed.stale, cluster.pod_list) == ("none", True, before)


def test_a_pod_whose_config_map_is_refused_is_taken_back() -> None:
    cluster = FakeCluster()
    cluster.refuse_config_maps = True
    with pytest.raises(Fault, match="refused by the test"):
        bring(cluster, "present", vmi())
    assert cluster.pod_list == {}


def test_an_interrupted_run_is_healed_by_the_next() -> None:
    cluster = FakeCluster()
    bring(cluster, "present", vmi())
    cluster.config_maps.clear()
    vm.heal(cluster, vmi(), SETTINGS, cluster.pod_list["default/vm-vm1"])
    assert "default/vm-vm1" in cluster.config_maps


def test_wait_ends_when_the_guest_runs_and_absent_when_the_pod_is_gone() -> None:
    cluster = FakeCluster(after={4: READY})
    bring(cluster, "present", vmi())
    assert vm.wait(cluster, vmi(), SETTINGS, "present", 60, sleep=lambda _seconds: None).phase == "Running"
    assert bring(cluster, "absent", vmi()).action == "delete"
    assert vm.wait(cluster, vmi(), SETTINGS, "absent", 60, sleep=lambda _seconds: None).phase == "Absent"
    assert bring(cluster, "absent", vmi()).action == "none"


def test_a_pending_vm_says_what_each_node_has() -> None:
    cluster = FakeCluster([node("w", {GPU: "0"}), node("x")])
    bring(cluster, "present", vmi())
    with pytest.raises(Timeout) as caught:
        vm.wait(cluster, vmi(), SETTINGS, "present", 0)
    assert f"w: {GPU}: 0 allocatable" in str(caught.value)
    assert f"x: {GPU}: never advertised" in str(caught.value)


def test_who_may_not_list_nodes_is_told_so_and_nothing_fails() -> None:
    cluster = FakeCluster()
    cluster.refuse_lists = True
    bring(cluster, "present", vmi())
    assert vm.look(cluster, vmi(), SETTINGS).message == "waits for the scheduler | what the nodes have is not known: may not list nodes"


def test_a_pod_deleted_by_others_is_not_waited_for() -> None:
    cluster = FakeCluster(after={3: None})
    bring(cluster, "present", vmi())
    with pytest.raises(Busy, match="somebody deleted"):
        vm.wait(cluster, vmi(), SETTINGS, "present", 60, sleep=lambda _seconds: None)


@pytest.mark.parametrize(
    ("wish", "nodes", "emulated"),
    [
        ("always", [], True),
        ("never", [], False),
        ("auto", [node("w")], True),
        ("auto", [node("w", {"devices.kubevirt.io/kvm": "1k"})], False),
    ],
)
def test_emulation_is_what_is_wished_or_what_the_nodes_offer(wish: str, nodes: list[dict[str, Any]], emulated: bool) -> None:
    assert vm.emulated(wish, nodes) is emulated

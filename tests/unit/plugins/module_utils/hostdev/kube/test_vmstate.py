"""What a pod and the nodes say about a VM."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.vmstate import pending_reasons, state_of, workloads
from ansible_collections.vfio.passthrough.tests.fakes.cluster import node

GPU = "nvidia.com/A10"


def pod(name: str = "p", node_name: str = "", phase: str = "Running", count: int = 1, **meta: Any) -> dict[str, Any]:
    containers = [{"name": "compute", "resources": {"limits": {GPU: str(count)}}}]
    return {
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": {"nodeName": node_name, "containers": containers},
        "status": {"phase": phase},
    }


def container(**status: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "compute", **status}]}


@pytest.mark.parametrize(
    ("status", "node_name", "phase", "message"),
    [
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]},
            "",
            "Pending",
            "0/1 nodes",
        ),
        ({"phase": "Pending", **container(state={"waiting": {"reason": "ContainerCreating"}})}, "w", "Starting", ""),
        (
            {"phase": "Pending", **container(state={"waiting": {"reason": "ErrImageNeverPull", "message": "no"}})},
            "w",
            "Starting",
            "ErrImageNeverPull: no",
        ),
        ({"phase": "Running", **container(ready=False, state={"running": {}})}, "w", "Starting", ""),
        ({"phase": "Running", **container(ready=True, state={"running": {}})}, "w", "Running", ""),
        (
            {"phase": "Failed", **container(state={"terminated": {"message": '{"state": "Failed", "message": "no grant"}'}})},
            "w",
            "Failed",
            "no grant",
        ),
        ({"phase": "Failed", **container(state={"terminated": {"reason": "Error", "message": "not json"}})}, "w", "Failed", "not json"),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"},
            "w",
            "Failed",
            "UnexpectedAdmissionError: Allocate failed",
        ),
    ],
)
def test_phase_and_message(status: dict[str, Any], node_name: str, phase: str, message: str) -> None:
    state = state_of("vm1", "default", {**pod(node_name=node_name), "status": status})
    assert (state.phase, state.node, state.message) == (phase, node_name, message)


def test_no_pod_and_a_pod_on_its_way_out() -> None:
    assert state_of("vm1", "default", None).phase == "Absent"
    leaving = pod(node_name="w", deletionTimestamp="2026-01-01T00:00:00Z")
    assert state_of("vm1", "default", leaving).phase == "Stopping"


def test_every_node_says_what_it_has_and_why_it_has_none() -> None:
    nodes = [
        node("full", {GPU: "2"}),
        node("empty", {GPU: "0"}),
        node("other", cordoned=True),
        node("down", {GPU: "1"}, ready=False),
    ]
    lines = pending_reasons({GPU: 1}, nodes, [pod("a", "full"), pod("b", "full"), pod("done", "full", "Succeeded")])
    assert lines[0] == f"full: {GPU}: 2 allocatable, 2 in use, held by default/a, default/b, 1 wanted"
    assert lines[1].startswith(f"empty: {GPU}: 0 allocatable; run")
    assert "never advertised" in lines[2] and lines[2].endswith("cordoned")
    assert lines[3] == f"down: {GPU}: 1 of 1 free; not ready (KubeletNotReady)"
    assert pending_reasons({GPU: 1}, [], []) == ["the cluster has no nodes"]


def test_workloads_leave_out_daemons_static_pods_and_the_finished() -> None:
    pods = [
        pod("db"),
        pod("agent", ownerReferences=[{"kind": "DaemonSet", "name": "agent"}]),
        pod("etcd-w", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("job", phase="Succeeded"),
    ]
    assert workloads(pods) == ["default/db"]

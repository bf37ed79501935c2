"""One VM brought to its wished state through the API server: observe, plan, apply, wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Callable, Protocol

from ..device.faults import Busy, Refused, Timeout
from ..vmi.instance import VirtualMachineInstance
from .pod import DIGEST, PodSettings, config_map, launcher_pod, object_name, vmi_digest
from .resources import KVM, asked_resources
from .vmstate import ABSENT, VmState, allocatable, pending_reasons, state_of

_POLL = 0.5


class Cluster(Protocol):
    """What is asked of the API server (kube/api.py, or a fake)."""

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a pod, or None."""

    def create_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod and return it."""

    def put_config_map(self, config_map: dict[str, Any]) -> None:
        """Create or replace a ConfigMap."""

    def delete_pod(self, namespace: str, name: str) -> bool:
        """Delete a pod; whether there was one."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""

    def pods(self, node: str = "") -> list[dict[str, Any]]:
        """Return all pods, or those of one node."""


@dataclass(frozen=True)
class Plan:
    """What has to be done: create or delete the pod, or nothing. before, after: for the diff; stale: runs with another spec."""

    action: str
    before: dict[str, Any]
    after: dict[str, Any]
    stale: bool = False


def emulated(wish: str, nodes: list[dict[str, Any]]) -> bool:
    """Return whether the guest will run by emulation: as wished, for "auto" when no node offers KVM."""
    if wish != "auto":
        return wish == "always"
    return not any(allocatable(node, KVM) for node in nodes)


def plan(wanted: str, vmi: VirtualMachineInstance, settings: PodSettings, pod: Mapping[str, Any] | None) -> Plan:
    """Return the plan for state "present" or "absent"; a VMI is one run, so a pod that exists is never replaced."""
    made = {"pod": launcher_pod(vmi, settings), "config_map": config_map(vmi, settings)} if wanted == "present" else {}
    if pod is None:
        return Plan("create" if wanted == "present" else "none", {}, made)
    if wanted == "absent":
        return Plan("delete", {"pod": {"metadata": {"name": object_name(vmi)}}}, {})
    stale = (pod["metadata"].get("annotations") or {}).get(DIGEST) != vmi_digest(vmi, settings)
    return Plan("none", {}, {}, stale)


def apply(cluster: Cluster, todo: Plan, vmi: VirtualMachineInstance, settings: PodSettings) -> None:
    """Carry the plan out; when the ConfigMap cannot be written the pod is taken back, since it would wait for ever."""
    name, namespace = object_name(vmi), namespace_of(vmi, settings)
    if todo.action == "delete":
        cluster.delete_pod(namespace, name)
    elif todo.action == "create":
        pod = cluster.create_pod(todo.after["pod"])
        try:
            cluster.put_config_map(config_map(vmi, settings, {"name": name, "uid": pod["metadata"]["uid"]}))
        except BaseException:
            cluster.delete_pod(namespace, name)
            raise


def heal(cluster: Cluster, vmi: VirtualMachineInstance, settings: PodSettings, pod: Mapping[str, Any]) -> None:
    """Write the ConfigMap again for a pod that waits for it: an earlier run may have been interrupted in between."""
    if (pod.get("status") or {}).get("phase") == "Pending" and (pod["metadata"].get("annotations") or {}).get(DIGEST) == vmi_digest(
        vmi, settings
    ):
        cluster.put_config_map(config_map(vmi, settings, {"name": object_name(vmi), "uid": pod["metadata"]["uid"]}))


def namespace_of(vmi: VirtualMachineInstance, settings: PodSettings) -> str:
    """Return the namespace of the VM's objects."""
    return vmi.metadata.namespace or settings.namespace


def look(cluster: Cluster, vmi: VirtualMachineInstance, settings: PodSettings) -> VmState:
    """Return the VM's state; a pending one says which nodes have how many of its devices, and why the others have none."""
    namespace = namespace_of(vmi, settings)
    state = state_of(vmi.name, namespace, cluster.pod(namespace, object_name(vmi)))
    if state.phase != "Pending":
        return state
    devices = {name: int(count) for name, count in asked_resources(vmi.spec, settings.gates, settings.sizing).limits.items() if "/" in name}
    wanted = devices if settings.emulated else {KVM: 1, **devices}
    return replace(state, message=" | ".join([state.message or "waits for the scheduler", *_reasons(cluster, wanted)]))


def _reasons(cluster: Cluster, wanted: Mapping[str, int]) -> list[str]:
    try:
        return pending_reasons(wanted, cluster.nodes(), cluster.pods())
    except Refused as fault:
        # that this account may not look at the nodes says nothing about the VM
        return [f"what the nodes have is not known: may not {fault.what}"]


def wait(
    cluster: Cluster,
    vmi: VirtualMachineInstance,
    settings: PodSettings,
    wanted: str,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> VmState:
    """Wait until the guest runs or its run is over ("present"), or its pod is gone ("absent"); Timeout with the last state."""
    deadline = time.monotonic() + seconds
    namespace = namespace_of(vmi, settings)
    while True:
        state = state_of(vmi.name, namespace, cluster.pod(namespace, object_name(vmi)))
        if state.phase == ABSENT if wanted == "absent" else state.settled:
            return state
        if state.phase == ABSENT:
            raise Busy(what="wait for a VM", subject=f"{namespace}/{vmi.name}", cause="somebody deleted its pod", hint="run this again")
        if time.monotonic() >= deadline:
            last = look(cluster, vmi, settings)
            hint = f"kubectl -n {namespace} describe pod {object_name(vmi)}"
            raise Timeout(
                what=f"bring a VM to {wanted}", subject=f"{namespace}/{vmi.name}", cause=f"after {seconds:g} s: {last.summary()}", hint=hint
            )
        sleep(_POLL)

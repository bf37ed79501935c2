"""What became of a VM, read from its pod and the cluster's nodes: values and words, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..vmi.quantity import Quantity
from .pod import COMPUTE

FINISHED = ("Succeeded", "Failed")
ABSENT = "Absent"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class VmState:
    """phase: Absent, Pending, Starting, Running, Stopping, Succeeded or Failed. message: why, with what to do."""

    name: str
    namespace: str
    phase: str
    node: str = ""
    message: str = ""
    report: Json | None = None

    @property
    def settled(self) -> bool:
        """Return whether waiting longer changes nothing: the guest runs, or its run is over."""
        return self.phase == "Running" or self.phase in FINISHED

    def summary(self) -> str:
        """Return one line for people."""
        place = f" on node {self.node}" if self.node else ""
        return f"{self.namespace}/{self.name}: {self.phase}{place}" + (f": {self.message}" if self.message else "")


def state_of(name: str, namespace: str, pod: Json | None) -> VmState:
    """Return the state that a pod object shows (None: there is no pod); why a pending pod waits is asked separately."""
    if pod is None:
        return VmState(name, namespace, ABSENT)
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    container: Json = next((one for one in status.get("containerStatuses") or () if one.get("name") == COMPUTE), {})
    report = _report(container)
    if phase == "Running":
        phase = "Running" if container.get("ready") else "Starting"
    elif phase == "Pending" and (pod.get("spec") or {}).get("nodeName"):
        phase = "Starting"
    if (pod.get("metadata") or {}).get("deletionTimestamp") and phase not in FINISHED:
        phase = "Stopping"
    return VmState(name, namespace, phase, str((pod.get("spec") or {}).get("nodeName") or ""), _message(status, container, report), report)


def _report(container: Json) -> Json | None:
    """Return the launcher's termination message as it wrote it: {"state", "reason", "message", ..}."""
    ended = (container.get("state") or {}).get("terminated") or {}
    try:
        found = json.loads(ended.get("message") or "null")
    except ValueError:
        return {"message": ended["message"]}
    return found if isinstance(found, dict) else None


def _message(status: Json, container: Json, report: Json | None) -> str:
    if report:
        return str(report.get("message") or report.get("reason") or "")
    for kind in ("waiting", "terminated"):
        found = (container.get("state") or {}).get(kind) or {}
        words = [str(found[key]) for key in ("reason", "message") if found.get(key)]
        if words and words != ["ContainerCreating"]:
            return ": ".join(words)
    words = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    if words:
        return ": ".join(words)
    unmet: Json = next(
        (one for one in status.get("conditions") or () if one.get("type") == "PodScheduled" and one.get("status") == "False"), {}
    )
    return str(unmet.get("message") or "")


def pending_reasons(wanted: Mapping[str, int], nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return, per node, how many of each wanted resource it has and uses, and why it has none.

    wanted: resource -> count, as the VM asks. nodes: Node objects. pods: all pods that may hold resources.
    """
    lines = [f"{_node_name(node)}: {'; '.join(_node_words(node, wanted, pods))}" for node in nodes]
    return lines or ["the cluster has no nodes"]


def _node_words(node: Json, wanted: Mapping[str, int], pods: Sequence[Json]) -> list[str]:
    words = []
    for resource, count in wanted.items():
        have = allocatable(node, resource)
        holders = [_pod_name(pod) for pod in pods if _uses(pod, node, resource)]
        used = sum(_uses(pod, node, resource) for pod in pods)
        if have is None:
            words.append(f"{resource}: never advertised; not declared for this node, or site.yml has not run on it")
        elif have == 0:
            words.append(f"{resource}: 0 allocatable; run `hostdev explain` on the node for the broken link")
        elif have - used < count:
            held = f", held by {', '.join(holders)}" if holders else ""
            words.append(f"{resource}: {have} allocatable, {used} in use{held}, {count} wanted")
        else:
            words.append(f"{resource}: {have - used} of {have} free")
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("cordoned")
    ready: Json = next((one for one in (node.get("status") or {}).get("conditions", ()) if one.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        words.append(f"not ready ({ready.get('reason') or 'no condition'})")
    return words


def allocatable(node: Json, resource: str) -> int | None:
    """Return how many of a resource a node offers; None when it never heard of it. Counts are quantities ("1k")."""
    text = (node.get("status") or {}).get("allocatable", {}).get(resource)
    return None if text is None else Quantity.parse(str(text)).ceil()


def _uses(pod: Json, node: Json, resource: str) -> int:
    if (pod.get("spec") or {}).get("nodeName") != _node_name(node) or (pod.get("status") or {}).get("phase") in FINISHED:
        return 0
    containers = (pod.get("spec") or {}).get("containers") or ()
    return sum(Quantity.parse(str(((one.get("resources") or {}).get("limits") or {}).get(resource, 0))).ceil() for one in containers)


def _node_name(node: Json) -> str:
    return str(node["metadata"]["name"])


def _pod_name(pod: Json) -> str:
    return f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"


def workloads(pods: Sequence[Json]) -> list[str]:
    """Return "namespace/name" of the pods that a reboot would interrupt: neither finished, nor static, nor a DaemonSet's."""
    return sorted(_pod_name(pod) for pod in pods if _is_workload(pod))


def _is_workload(pod: Json) -> bool:
    meta = pod["metadata"]
    static = "kubernetes.io/config.mirror" in (meta.get("annotations") or {})
    daemon = any(owner.get("kind") == "DaemonSet" for owner in meta.get("ownerReferences") or ())
    return not static and not daemon and (pod.get("status") or {}).get("phase") not in FINISHED

"""A cluster of plain objects for tests of kube/vm.py: it does what the API server, scheduler and kubelet would show."""

from __future__ import annotations

from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy, Fault, Refused


class FakeCluster:
    """Nodes, pods and ConfigMaps in memory; `after` maps the number of a look at a pod to the status it shows from then on."""

    def __init__(self, nodes: list[dict[str, Any]] | None = None, after: dict[int, dict[str, Any] | None] | None = None) -> None:
        self.node_list = nodes or []
        self.pod_list: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.after = after or {}
        self.looks = 0
        self.refuse_config_maps = False
        self.refuse_lists = False

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a pod, after the change that is due at this look."""
        self.looks += 1
        key = f"{namespace}/{name}"
        if self.looks in self.after and key in self.pod_list:
            status = self.after[self.looks]
            if status is None:
                del self.pod_list[key]
            else:
                self.pod_list[key].update(status)
        return self.pod_list.get(key)

    def create_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Keep a pod with a uid and phase Pending; Busy when its name is taken."""
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if key in self.pod_list:
            raise Busy(what="create a pod", subject=key, cause="exists")
        made = {**pod, "metadata": {**pod["metadata"], "uid": f"uid-of-{key}"}, "status": {"phase": "Pending"}}
        self.pod_list[key] = made
        return made

    def put_config_map(self, config_map: dict[str, Any]) -> None:
        """Keep a ConfigMap."""
        if self.refuse_config_maps:
            raise Fault(what="write a ConfigMap", subject=config_map["metadata"]["name"], cause="refused by the test")
        self.config_maps[f"{config_map['metadata']['namespace']}/{config_map['metadata']['name']}"] = config_map

    def delete_pod(self, namespace: str, name: str) -> bool:
        """Forget a pod."""
        return self.pod_list.pop(f"{namespace}/{name}", None) is not None

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes; Refused when refuse_lists is set."""
        if self.refuse_lists:
            raise Refused(what="list nodes", subject="all", cause="refused by the test")
        return self.node_list

    def pods(self, node: str = "") -> list[dict[str, Any]]:
        """Return all pods, or those of one node."""
        return [pod for pod in self.pod_list.values() if not node or pod["spec"].get("nodeName") == node]


def node(name: str, allocatable: dict[str, str] | None = None, *, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    """Return a Node object; allocatable by resource name."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": "KubeletReady" if ready else "KubeletNotReady"}]
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"allocatable": dict(allocatable or {}), "conditions": conditions},
    }

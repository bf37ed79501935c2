"""A cluster of plain objects for tests of kube/daemonset_api.py: DaemonSets, labelled nodes, and pods that come and go at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.daemonset import Workload, workload_of

LABEL = {"example.com/agent": "true"}


def definition(image: str = "agent:1") -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"nodeSelector": dict(LABEL), "containers": [{"name": "agent", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "OnDelete"}, "template": template},
    }


def workload(image: str = "agent:1") -> Workload:
    return workload_of(definition(image))


class FakeDaemonSets:
    """nodes: name -> labels. slow: pods are not made before `catch_up`. did: what was written, in order."""

    def __init__(self, *nodes: str) -> None:
        self.nodes: dict[str, dict[str, str]] = {name: {} for name in nodes}
        self.stored: Optional[dict[str, Any]] = None
        self.pod_list: list[dict[str, Any]] = []
        self.slow = False
        self.ready = True
        self.did: list[str] = []
        self._made = 0

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        if name not in self.nodes:
            raise Absent(what="read a node", subject=name, cause="the API server answered 404")
        return {"metadata": {"name": name, "labels": dict(self.nodes[name])}}

    def read(self, unused_workload: Workload) -> Optional[dict[str, Any]]:
        """Return the DaemonSet."""
        return copy.deepcopy(self.stored)

    def apply(self, workload: Workload, dry_run: bool) -> dict[str, Any]:
        """Return the definition with a default that the server fills in."""
        made = copy.deepcopy(dict(workload.definition))
        made["spec"]["revisionHistoryLimit"] = 10
        if not dry_run:
            self.did.append("apply")
            self.stored = made
            self.catch_up()
        return made

    def delete(self, unused_workload: Workload) -> None:
        """Forget the DaemonSet and its pods."""
        self.did.append("delete")
        self.stored, self.pod_list = None, []

    def label(self, node: str, labels: Mapping[str, Optional[str]]) -> None:
        """Set labels."""
        self.did.append(f"label {node} {dict(labels)}")
        self.nodes[node] = {key: value for key, value in {**self.nodes[node], **labels}.items() if value is not None}
        self.catch_up()

    def bearers(self, labels: Mapping[str, str]) -> list[str]:
        """Return the nodes with these labels."""
        return [name for name, borne in self.nodes.items() if labels.items() <= borne.items()]

    def pods(self, unused_workload: Workload, node: str) -> list[dict[str, Any]]:
        """Return the pods on a node."""
        return [pod for pod in self.pod_list if pod["spec"]["nodeName"] == node]

    def delete_pod(self, unused_workload: Workload, name: str) -> None:
        """Forget a pod."""
        self.did.append(f"delete pod {name}")
        self.pod_list = [pod for pod in self.pod_list if pod["metadata"]["name"] != name]
        self.catch_up()

    def catch_up(self) -> None:
        """Do what the DaemonSet controller and the kubelets do."""
        if self.slow:
            return
        spec = (self.stored or {}).get("spec")
        wanted = self.bearers(spec["template"]["spec"]["nodeSelector"]) if spec else []
        self.pod_list = [pod for pod in self.pod_list if pod["spec"]["nodeName"] in wanted]
        for node in wanted:
            if not self.pods(None, node):  # type: ignore[arg-type]
                self._made += 1
                self.pod_list.append(self._pod(f"pod-{self._made}", node))

    def _pod(self, name: str, node: str) -> dict[str, Any]:
        template = copy.deepcopy((self.stored or {})["spec"]["template"])
        state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        status = {
            "phase": "Running" if self.ready else "Pending",
            "conditions": [{"type": "Ready", "status": str(self.ready)}],
            "containerStatuses": [] if self.ready else [{"state": state}],
        }
        return {"metadata": {"name": name, "namespace": "n", **template["metadata"]}, "spec": {"nodeName": node}, "status": status}

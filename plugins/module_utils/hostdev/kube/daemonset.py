"""A DaemonSet that runs on the nodes which bear its label: what is asked of its definition, and what its pods tell."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ..device.faults import Refused

DIGEST = "vfio-passthrough/template"
_WHAT = "read a DaemonSet's definition"


@dataclass(frozen=True)
class Workload:
    """A DaemonSet. definition: with the digest of its pods' template as their annotation DIGEST.

    node_labels: what a node has to bear to get a pod. pod_labels: by which its pods are known.
    """

    namespace: str
    name: str
    definition: Mapping[str, Any]
    digest: str
    node_labels: Mapping[str, str]
    pod_labels: Mapping[str, str]

    @property
    def title(self) -> str:
        """Return how messages name it."""
        return f"{self.namespace}/{self.name}"

    def owns(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether a pod is one of its own."""
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        return meta["namespace"] == self.namespace and all(labels.get(key) == value for key, value in self.pod_labels.items())


def workload_of(definition: Mapping[str, Any]) -> Workload:
    """Return the DaemonSet that a definition describes; Refused with the path of what is missing."""
    if definition.get("kind") != "DaemonSet" or definition.get("apiVersion") != "apps/v1":
        raise _refused("kind", f"{definition.get('apiVersion')} {definition.get('kind')} is no apps/v1 DaemonSet")
    made: dict[str, Any] = copy.deepcopy(dict(definition))
    namespace, name = (_text(made, "metadata", key) for key in ("namespace", "name"))
    pod_labels = _labels(made, "spec", "selector", "matchLabels")
    node_labels = _labels(made, "spec", "template", "spec", "nodeSelector")
    template = made["spec"]["template"]
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:12]
    template.setdefault("metadata", {}).setdefault("annotations", {})[DIGEST] = digest
    return Workload(namespace, name, made, digest, node_labels, pod_labels)


def _refused(path: str, cause: str) -> Refused:
    return Refused(what=_WHAT, subject=path, cause=cause, hint="see the module's documentation")


def _at(definition: Mapping[str, Any], *keys: str) -> Any:
    found: Any = definition
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _text(definition: Mapping[str, Any], *keys: str) -> str:
    found = _at(definition, *keys)
    if not isinstance(found, str) or not found:
        raise _refused(".".join(keys), "it is missing")
    return found


def _labels(definition: Mapping[str, Any], *keys: str) -> dict[str, str]:
    found = _at(definition, *keys)
    if not isinstance(found, Mapping) or not found or not all(isinstance(value, str) for value in found.values()):
        raise _refused(".".join(keys), "a map of texts is needed, as it says which nodes and pods are meant")
    return dict(found)


def bears(node: Optional[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """Tell whether a node has all these labels."""
    found = (node or {}).get("metadata", {}).get("labels") or {}
    return all(found.get(key) == value for key, value in labels.items())


def excerpt(found: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what of a DaemonSet is compared and shown: its labels and its specification, as the API server completes them."""
    return {"labels": found["metadata"].get("labels") or {}, "spec": found["spec"]} if found else {}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod does its work."""
    conditions = pod.get("status", {}).get("conditions") or []
    return not pod["metadata"].get("deletionTimestamp") and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_current(pod: Mapping[str, Any], digest: str) -> bool:
    """Tell whether a pod is of the template with this digest."""
    return (pod["metadata"].get("annotations") or {}).get(DIGEST) == digest


def waits_for(pods: Iterable[Mapping[str, Any]], digest: str) -> str:
    """Return what the node's pod of this template is still waiting for; "" when it is ready and the only one."""
    found = list(pods)
    if any(not is_current(pod, digest) for pod in found):
        return "its former pod has not ended"
    if not found:
        return "no pod was made for the node: is it cordoned off by a taint that the pods do not tolerate, or full?"
    return "" if all(is_ready(pod) for pod in found) else "; ".join(state_of(pod) for pod in found)


def state_of(pod: Mapping[str, Any]) -> str:
    """Return why a pod is not ready, in the kubelet's and the scheduler's own words."""
    status = pod.get("status", {})
    words = [status.get("reason"), status.get("message")]
    words += [one.get("message") for one in status.get("conditions") or [] if one["type"] == "PodScheduled" and one["status"] != "True"]
    for container in status.get("containerStatuses") or []:
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            for about in (state.get("waiting"), state.get("terminated")):
                words += [about.get("reason"), about.get("message")] if about else []
    said = list(dict.fromkeys(str(word).strip() for word in words if word))
    return f"pod {pod['metadata']['name']} is {status.get('phase', 'Pending')}, not ready{': ' if said else ''}{', '.join(said)}"

"""Giving a node its pod of a DaemonSet, and taking it away, through the API server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol

from ..device.faults import Absent, Timeout
from .api import APPLY, Api
from .daemonset import Workload, bears, excerpt, is_current, waits_for

_MANAGER = "vfio-passthrough"
_PAUSE = 1.0


class Cluster(Protocol):
    """What is asked of the API server (DaemonSets, or a fake)."""

    def node(self, name: str) -> dict[str, Any]:
        """Return a node; Absent without one."""

    def read(self, workload: Workload) -> Optional[dict[str, Any]]:
        """Return the DaemonSet, None when there is none."""

    def apply(self, workload: Workload, dry_run: bool) -> dict[str, Any]:
        """Return the DaemonSet as it is, or would be, with the definition applied."""

    def delete(self, workload: Workload) -> None:
        """Delete the DaemonSet and its pods."""

    def label(self, node: str, labels: Mapping[str, Optional[str]]) -> None:
        """Set a node's labels; None takes one away."""

    def bearers(self, labels: Mapping[str, str]) -> list[str]:
        """Return the nodes with these labels."""

    def pods(self, workload: Workload, node: str) -> list[dict[str, Any]]:
        """Return the DaemonSet's pods on a node."""

    def delete_pod(self, workload: Workload, name: str) -> None:
        """End a pod; the DaemonSet makes another one of its present template."""


class DaemonSets:
    """The DaemonSets and nodes of one cluster."""

    def __init__(self, api: Api) -> None:
        """Take the connection."""
        self._api = api

    def node(self, name: str) -> dict[str, Any]:
        """Return a node; Absent without one."""
        return self._api.call("get", f"/api/v1/nodes/{name}", what="read a node")

    def read(self, workload: Workload) -> Optional[dict[str, Any]]:
        """Return the DaemonSet, None when there is none."""
        try:
            return self._api.call("get", _path(workload), what="read a DaemonSet")
        except Absent:
            return None

    def apply(self, workload: Workload, dry_run: bool) -> dict[str, Any]:
        """Apply the definition on the server's side: what it no longer says goes, and what others set beside it stays."""
        options: dict[str, Any] = {"field_manager": _MANAGER, "force_conflicts": True, **({"dry_run": "All"} if dry_run else {})}
        return self._api.call(
            "patch", _path(workload), what="apply a DaemonSet", body=dict(workload.definition), content_type=APPLY, **options
        )

    def delete(self, workload: Workload) -> None:
        """Delete the DaemonSet; its pods go after it."""
        self._api.call("delete", _path(workload), what="delete a DaemonSet", propagation_policy="Background")

    def label(self, node: str, labels: Mapping[str, Optional[str]]) -> None:
        """Set a node's labels; None takes one away."""
        body = {"metadata": {"labels": dict(labels)}}
        self._api.call("patch", f"/api/v1/nodes/{node}", what="label a node", body=body, field_manager=_MANAGER)

    def bearers(self, labels: Mapping[str, str]) -> list[str]:
        """Return the nodes with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self._api.call("get", "/api/v1/nodes", what="list nodes", label_selector=selector)
        return [one["metadata"]["name"] for one in found["items"]]

    def pods(self, workload: Workload, node: str) -> list[dict[str, Any]]:
        """Return the DaemonSet's pods on a node."""
        return [pod for pod in self._api.pods(node) if workload.owns(pod)]

    def delete_pod(self, workload: Workload, name: str) -> None:
        """End a pod; the DaemonSet makes another one of its present template."""
        self._api.delete_pod(workload.namespace, name)


def _path(workload: Workload) -> str:
    return f"/apis/apps/v1/namespaces/{workload.namespace}/daemonsets/{workload.name}"


@dataclass(frozen=True)
class Change:
    """What was, or would be, changed. Both hold: daemonset (its excerpt), on_node (whether the node bears the label), former_pods."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changed(self) -> bool:
        """Return whether anything differs."""
        return self.before != self.after


def give(cluster: Cluster, workload: Workload, node: str, dry_run: bool) -> Change:
    """Apply the DaemonSet, label the node, and end its pods of a former template; Absent when there is no such node.

    Its update strategy has to be OnDelete: so a new template reaches the nodes in the order in which they are given it.
    """
    labelled = bears(cluster.node(node), workload.node_labels)
    before = excerpt(cluster.read(workload))
    after = excerpt(cluster.apply(workload, dry_run=True))
    former = sorted(pod["metadata"]["name"] for pod in cluster.pods(workload, node) if not is_current(pod, workload.digest))
    if not dry_run:
        if before != after:
            cluster.apply(workload, dry_run=False)
        if not labelled:
            cluster.label(node, workload.node_labels)
        for name in former:
            cluster.delete_pod(workload, name)
    return Change(
        {"daemonset": before, "on_node": labelled, "former_pods": former}, {"daemonset": after, "on_node": True, "former_pods": []}
    )


def take(cluster: Cluster, workload: Workload, node: str, dry_run: bool) -> Change:
    """Take the node's label away, and with the last one the DaemonSet; a node that is gone has none."""
    try:
        labelled = bears(cluster.node(node), workload.node_labels)
    except Absent:
        labelled = False
    before = excerpt(cluster.read(workload))
    if labelled and not dry_run:
        cluster.label(node, dict.fromkeys(workload.node_labels))
    # asked after the change: of two nodes that go at the same time the later one sees none
    last = not set(cluster.bearers(workload.node_labels)) - {node}
    if before and last and not dry_run:
        cluster.delete(workload)
    return Change({"daemonset": before, "on_node": labelled}, {"daemonset": {} if last else before, "on_node": False})


def wait_given(cluster: Cluster, workload: Workload, node: str, seconds: float) -> None:
    """Wait until the node's pod of the present template is ready; Timeout says what it waits for."""
    _wait(
        lambda: waits_for(cluster.pods(workload, node), workload.digest), "start a DaemonSet's pod", f"{workload.title} on {node}", seconds
    )


def wait_taken(cluster: Cluster, workload: Workload, node: str, seconds: float) -> None:
    """Wait until the node has no pod of the DaemonSet; Timeout names those that stay."""

    def left() -> str:
        return ", ".join(f"pod {pod['metadata']['name']} is still there" for pod in cluster.pods(workload, node))

    _wait(left, "end a DaemonSet's pod", f"{workload.title} on {node}", seconds)


def _wait(missing: Callable[[], str], what: str, subject: str, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while True:
        cause = missing()
        if not cause:
            return
        if time.monotonic() > limit:
            raise Timeout(what=what, subject=subject, cause=f"not within {seconds:.0f} s: {cause}", hint="look at its pod by kubectl")
        time.sleep(_PAUSE)

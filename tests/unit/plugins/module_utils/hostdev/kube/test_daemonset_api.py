from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import daemonset_api
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.daemonset import DIGEST
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.daemonset_api import (
    DaemonSets,
    give,
    take,
    wait_given,
    wait_taken,
)
from ansible_collections.vfio.passthrough.tests.fakes.daemonsets import LABEL, FakeDaemonSets, workload


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemonset_api, "_PAUSE", 0.0)


@pytest.fixture(name="cluster")
def _cluster() -> FakeDaemonSets:
    return FakeDaemonSets("a", "b")


def test_a_node_is_given_its_pod_and_nothing_changes_again(cluster: FakeDaemonSets) -> None:
    first = give(cluster, workload(), "a", dry_run=False)
    wait_given(cluster, workload(), "a", 0)
    assert (first.before["daemonset"], first.before["on_node"], first.after["on_node"]) == ({}, False, True)
    assert [pod["spec"]["nodeName"] for pod in cluster.pod_list] == ["a"]
    assert not give(cluster, workload(), "a", dry_run=False).changed
    assert cluster.did == ["apply", f"label a {LABEL}"]


def test_a_dry_run_tells_the_same_and_writes_nothing(cluster: FakeDaemonSets) -> None:
    told = give(cluster, workload(), "a", dry_run=True)
    assert (cluster.did, cluster.stored) == ([], None)
    assert told == give(cluster, workload(), "a", dry_run=False)
    give(cluster, workload(), "b", dry_run=False)
    did = list(cluster.did)
    told = take(cluster, workload(), "a", dry_run=True)
    assert cluster.did == did
    assert told == take(cluster, workload(), "a", dry_run=False)


def test_a_new_template_reaches_the_node_that_it_is_given(cluster: FakeDaemonSets) -> None:
    for node in ("a", "b"):
        give(cluster, workload(), node, dry_run=False)
    changed = give(cluster, workload("agent:2"), "a", dry_run=False)
    assert changed.before["former_pods"] == ["pod-1"]
    assert cluster.did[-2:] == ["apply", "delete pod pod-1"]
    assert [(pod["spec"]["nodeName"], pod["metadata"]["annotations"][DIGEST]) for pod in cluster.pod_list] == [
        ("b", workload().digest),
        ("a", workload("agent:2").digest),
    ]
    # the DaemonSet is as it should be by now, and the other node's pod is not
    assert give(cluster, workload("agent:2"), "b", dry_run=False).before["former_pods"] == ["pod-2"]
    assert not give(cluster, workload("agent:2"), "b", dry_run=False).changed


def test_with_the_last_node_the_daemonset_goes(cluster: FakeDaemonSets) -> None:
    for node in ("a", "b"):
        give(cluster, workload(), node, dry_run=False)
    one = take(cluster, workload(), "a", dry_run=False)
    wait_taken(cluster, workload(), "a", 0)
    assert (one.changed, one.after["daemonset"]) == (True, one.before["daemonset"])
    last = take(cluster, workload(), "b", dry_run=False)
    assert (last.after, cluster.stored, cluster.pod_list) == ({"daemonset": {}, "on_node": False}, None, [])
    assert not take(cluster, workload(), "b", dry_run=False).changed


def test_a_node_that_is_gone_can_be_taken_and_not_given(cluster: FakeDaemonSets) -> None:
    give(cluster, workload(), "a", dry_run=False)
    with pytest.raises(Absent):
        give(cluster, workload(), "c", dry_run=False)
    assert not take(cluster, workload(), "c", dry_run=False).changed
    assert cluster.stored is not None


def test_waiting_ends_with_the_reason(cluster: FakeDaemonSets) -> None:
    cluster.slow = True
    give(cluster, workload(), "a", dry_run=False)
    with pytest.raises(Timeout, match="no pod was made for the node"):
        wait_given(cluster, workload(), "a", 0)
    cluster.slow = cluster.ready = False
    cluster.catch_up()
    with pytest.raises(Timeout, match="pod pod-1 is Pending, not ready: ImagePullBackOff, no such image"):
        wait_given(cluster, workload(), "a", 0)
    with pytest.raises(Timeout, match="pod pod-1 is still there"):
        wait_taken(cluster, workload(), "a", 0)


class Calls:
    """The connection, as far as DaemonSets uses it: it keeps what it is asked."""

    def __init__(self, answers: list[dict[str, Any] | Exception]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        self.asked.append((method, path, options))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pods(self, unused_node: str) -> list[dict[str, Any]]:
        mine = {"namespace": "n", "name": "mine", "labels": {"app": "agent", "more": "x"}}
        return [{"metadata": mine}, {"metadata": {**mine, "namespace": "m"}}, {"metadata": {"namespace": "n", "name": "other"}}]


def test_the_api_server_is_asked_as_it_has_to_be() -> None:
    calls = Calls([Absent(what="w", subject="s", cause="c"), {}, {}, {}, {"items": [{"metadata": {"name": "a"}}]}, {}])
    made = DaemonSets(calls)  # type: ignore[arg-type]
    assert made.read(workload()) is None
    made.apply(workload(), dry_run=True)
    made.apply(workload(), dry_run=False)
    made.label("a", {"example.com/agent": None})
    assert made.bearers(LABEL) == ["a"]
    made.delete(workload())
    path = "/apis/apps/v1/namespaces/n/daemonsets/agent"
    assert [(method, where) for method, where, _options in calls.asked] == [
        ("get", path),
        ("patch", path),
        ("patch", path),
        ("patch", "/api/v1/nodes/a"),
        ("get", "/api/v1/nodes"),
        ("delete", path),
    ]
    dry, wet = calls.asked[1][2], calls.asked[2][2]
    assert (dry["dry_run"], "dry_run" in wet, wet["content_type"]) == ("All", False, "application/apply-patch+yaml")
    assert (wet["field_manager"], wet["force_conflicts"], wet["body"]) == ("vfio-passthrough", True, workload().definition)
    assert calls.asked[3][2]["body"] == {"metadata": {"labels": {"example.com/agent": None}}}
    assert calls.asked[4][2]["label_selector"] == "example.com/agent=true"
    assert calls.asked[5][2]["propagation_policy"] == "Background"
    assert [pod["metadata"]["name"] for pod in made.pods(workload(), "a")] == ["mine"]

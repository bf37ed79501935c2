from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.daemonset import DIGEST, waits_for, workload_of
from ansible_collections.vfio.passthrough.tests.fakes.daemonsets import LABEL, FakeDaemonSets, definition, workload


def test_the_pods_template_bears_its_digest() -> None:
    given = definition()
    made = workload_of(given)
    assert made.definition["spec"]["template"]["metadata"]["annotations"] == {DIGEST: made.digest}
    assert given == definition()
    assert made.digest == workload().digest != workload("agent:2").digest
    assert (made.title, made.node_labels, made.pod_labels) == ("n/agent", LABEL, {"app": "agent"})


@pytest.mark.parametrize(
    ("way", "value", "path"),
    [
        (("kind",), "Deployment", "kind"),
        (("apiVersion",), "apps/v1beta2", "kind"),
        (("metadata", "namespace"), "", "metadata.namespace"),
        (("metadata",), None, "metadata.namespace"),
        (("spec", "selector", "matchLabels"), {}, "spec.selector.matchLabels"),
        (("spec", "template", "spec", "nodeSelector"), {"a": True}, "spec.template.spec.nodeSelector"),
        (("spec", "template", "spec", "nodeSelector"), None, "spec.template.spec.nodeSelector"),
    ],
)
def test_what_is_missing_in_a_definition_is_named_by_its_path(way: tuple[str, ...], value: object, path: str) -> None:
    given = copy.deepcopy(definition())
    place: Any = given
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    with pytest.raises(Refused) as caught:
        workload_of(given)
    assert caught.value.subject == path


def test_a_former_pod_is_waited_for() -> None:
    cluster = FakeDaemonSets("a")
    cluster.apply(workload(), dry_run=False)
    cluster.label("a", dict(LABEL))
    assert waits_for(cluster.pod_list, workload("agent:2").digest) == "its former pod has not ended"
    leaving = copy.deepcopy(cluster.pod_list)
    leaving[0]["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    assert waits_for(leaving, workload().digest).startswith("pod pod-1 is Running, not ready")
    assert waits_for(cluster.pod_list, workload().digest) == ""

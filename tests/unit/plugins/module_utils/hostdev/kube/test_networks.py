"""Multus networks: what the pod is marked with, and where the launcher reads what came of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.networks import network_annotations
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.networks import pod_interface
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

GRANT = "vfio.passthrough/grant"
FUNCTIONS: dict[str, Any] = {
    "domain": {
        "devices": {"interfaces": [{"name": "blue", "sriov": {}, "macAddress": "de:ad:00:00:be:ef"}, {"name": "red", "sriov": {}}]},
        "memory": {"guest": "1Gi"},
    },
    "networks": [{"name": "blue", "multus": {"networkName": "fast"}}, {"name": "red", "multus": {"networkName": "other/slow"}}],
}


def pod(spec: dict[str, Any], **settings: Any) -> Any:
    vmi = VirtualMachineInstance(metadata=Metadata(name="v", namespace="demo"), spec=spec_of(spec))
    return launcher_pod(vmi, PodSettings(image="x", **settings))


def test_an_interface_has_kubevirts_name() -> None:
    assert pod_interface("blue") == "pod16477688c0e"


def test_networks_stand_in_the_order_written_with_their_namespaces() -> None:
    annotations = pod(FUNCTIONS)["metadata"]["annotations"]
    assert json.loads(annotations["k8s.v1.cni.cncf.io/networks"]) == [
        {"name": "fast", "namespace": "demo", "mac": "de:ad:00:00:be:ef", "interface": "pod16477688c0e"},
        {"name": "slow", "namespace": "other", "interface": pod_interface("red")},
    ]


def test_a_default_network_takes_the_place_of_the_pods_own() -> None:
    spec = spec_of({"networks": [{"name": "n", "multus": {"networkName": "x", "default": True}}]})
    assert network_annotations(spec, "demo") == {"v1.multus-cni.io/default-network": "demo/x"}


def test_the_launcher_reads_what_multus_answered() -> None:
    spec = pod(FUNCTIONS)["spec"]
    (volume,) = [one for one in spec["volumes"] if "downwardAPI" in one]
    (place,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert place == {"name": volume["name"], "mountPath": "/etc/podinfo", "readOnly": True}
    assert {item["path"]: item["fieldRef"]["fieldPath"] for item in volume["downwardAPI"]["items"]} == {
        "network-status": "metadata.annotations['k8s.v1.cni.cncf.io/network-status']",
        "network-info": "metadata.annotations['kubevirt.io/network-info']",
    }


def test_without_a_declared_grant_virtual_functions_are_refused_with_the_way_out() -> None:
    with pytest.raises(Refused) as caught:
        pod(FUNCTIONS, declared=["x.io/g"])
    assert caught.value.subject == "spec.domain.devices.interfaces[0], spec.domain.devices.interfaces[1]"
    assert GRANT in caught.value.cause
    assert "hostDevices" in caught.value.hint
    assert pod(FUNCTIONS, declared=[GRANT])["kind"] == "Pod"


def test_without_networks_there_is_neither_annotation_nor_volume() -> None:
    made = pod({"domain": {"memory": {"guest": "1Gi"}}})
    assert not [name for name in made["metadata"]["annotations"] if "cni" in name]
    assert not [one for one in made["spec"]["volumes"] if "downwardAPI" in one]

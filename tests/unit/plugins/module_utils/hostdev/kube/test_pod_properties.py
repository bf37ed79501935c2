"""Pods of generated guests: what Kubernetes asks of every pod, and Pod Security's level "restricted" of these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.effective import effective
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.resources import KVM
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.volumes import RESTRICTED, security_level
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.checks import CHECKS
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import GATES
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.quantity import Quantity
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.waiting import waiting
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

ALLOWED = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "image"}
AMOUNTS = {"memory": st.sampled_from(["64Mi", "1Gi", "3Gi", "5368709121"]), "cpu": st.sampled_from(["500m", "2", "3500m"])}
SOURCES: list[dict[str, Any]] = [
    {"emptyDisk": {"capacity": "1Gi"}},
    {"containerDisk": {"image": "i", "imagePullSecret": "s"}},
    {"persistentVolumeClaim": {"claimName": "file"}},
    {"persistentVolumeClaim": {"claimName": "block"}},
    {"hostDisk": {"path": "/data/disk.img", "type": "Disk"}},
    {"cloudInitNoCloud": {"secretRef": {"name": "u"}, "networkDataSecretRef": {"name": "n"}}},
    {"configMap": {"name": "c"}},
]


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    entries = st.sampled_from(["x.io/gpu", "x.io/nic", "x.io/stick"])
    lists = {
        key: [{"name": f"{key}{number}", "deviceName": name} for number, name in enumerate(draw(st.lists(entries, max_size=4)))]
        for key in ("gpus", "hostDevices")
    }
    networks = draw(st.integers(0, 2))
    names = [f"v{number}".ljust(draw(st.sampled_from([2, 63])), "x") for number in range(draw(st.integers(0, 3)))]
    memory: dict[str, Any] = {"guest": draw(st.sampled_from(["1Gi", "2Gi"]))}
    if draw(st.booleans()):
        memory["hugepages"] = {"pageSize": "2Mi"}
    resources = {side: draw(st.fixed_dictionaries({}, optional=AMOUNTS)) for side in ("requests", "limits")}
    cpu = {"cores": draw(st.integers(0, 5)), "dedicatedCpuPlacement": draw(st.booleans())}
    devices = {
        **lists,
        "interfaces": [{"name": f"n{number}", "sriov": {}} for number in range(networks)],
        "disks": [{"name": name} for name in names],
    }
    return {
        "domain": {"devices": devices, "memory": memory, "resources": resources, "cpu": cpu},
        "networks": [{"name": f"n{number}", "multus": {"networkName": f"net{number}"}} for number in range(networks)],
        "volumes": [{"name": name, **draw(st.sampled_from(SOURCES))} for name in names],
    }


def number(text: str) -> Any:
    return Quantity.parse(text).value


def check_resources(resources: Mapping[str, Any]) -> None:
    limits, requests = resources["limits"], resources["requests"]
    for name in {*limits, *requests} - {"cpu", "memory", "ephemeral-storage", KVM}:
        assert limits[name] == requests[name]
        assert int(limits[name]) >= 1
    for name in ("cpu", "memory"):
        assert number(requests[name]) > 0
        assert name not in limits or number(limits[name]) >= number(requests[name])


def check_volumes(spec: Mapping[str, Any]) -> None:
    (container,) = spec["containers"]
    names = [one["name"] for one in spec["volumes"]]
    used = [one["name"] for one in (*container["volumeMounts"], *container.get("volumeDevices", ()))]
    places = [one.get("mountPath") or one["devicePath"] for one in (*container["volumeMounts"], *container.get("volumeDevices", ()))]
    assert sorted(names) == sorted(used) == sorted(set(names))
    assert len(set(places)) == len(places)
    assert all(len(name) <= 63 for name in names)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(document=specs(), gates=st.sets(st.sampled_from(sorted(GATES))), emulated=st.booleans())
def test_every_pod_is_one_that_kubernetes_takes(document: dict[str, Any], gates: set[str], emulated: bool) -> None:
    spec = spec_of(document)
    assume(not [problem for check in CHECKS if check is not waiting for problem in check(spec, "spec")])
    made = [
        launcher_pod(
            VirtualMachineInstance(metadata=Metadata(name="guest"), spec=spec_of(document)),
            PodSettings(image="x", emulated=emulated, gates=frozenset(gates), blocks=frozenset({"block"})),
        )
        for _again in range(2)
    ]
    assert json.dumps(made[0]) == json.dumps(made[1])
    pod = made[0]["spec"]
    check_resources(pod["containers"][0]["resources"])
    check_volumes(pod)
    kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
    assert (kinds <= ALLOWED) == (security_level(spec) == RESTRICTED)
    assert effective(effective(spec)) == effective(spec)

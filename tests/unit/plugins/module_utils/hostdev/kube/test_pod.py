"""The launcher pod: what it asks for, what it may, what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.overhead import overhead
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

GPU = "nvidia.com/GA102GL_A10"


def document(**spec: Any) -> dict[str, Any]:
    domain = {"devices": {"gpus": [{"name": "gpu1", "deviceName": GPU}]}, "cpu": {"cores": 2}, "resources": {"requests": {"memory": "4Gi"}}}
    made = {"domain": {**domain, **spec.pop("domain", {})}, **spec}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm1"}, "spec": made}


def vmi(**spec: Any) -> VirtualMachineInstance:
    return pod.instance_of(parse_manifest(document(**spec)))


def made(**spec: Any) -> dict[str, Any]:
    return pod.launcher_pod(vmi(**spec), pod.PodSettings(image="localhost/launcher:1"))


def made_of(domain: dict[str, Any]) -> dict[str, Any]:
    run = VirtualMachineInstance(metadata=Metadata(name="v"), spec=spec_of({"domain": domain}))
    spec: dict[str, Any] = pod.launcher_pod(run, pod.PodSettings(image="x"))["spec"]
    return spec


def test_resources_are_those_of_kubevirt() -> None:
    resources = made()["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"devices.kubevirt.io/kvm": "1", GPU: "1"}
    assert resources["requests"] == {"cpu": "200m", "memory": "5666504705", "ephemeral-storage": "50M", GPU: "1"}


def test_an_emulated_guest_asks_for_no_kvm() -> None:
    container = pod.launcher_pod(vmi(), pod.PodSettings(image="x", emulated=True))["spec"]["containers"][0]
    assert container["resources"]["limits"] == {GPU: "1"}
    assert container["env"][0] == {"name": "HOSTDEV_EMULATION", "value": "always"}


def test_the_launcher_is_told_how_much_to_lock_when_a_device_needs_it() -> None:
    def lock(**spec: Any) -> list[str]:
        return [one["value"] for one in made(**spec)["spec"]["containers"][0]["env"] if one["name"] == pod.MEMORY_LOCK]

    two = [{"name": name, "deviceName": GPU} for name in ("a", "b")]
    (one_device,), (two_devices,) = lock(), lock(domain={"devices": {"gpus": two}})
    assert int(two_devices) - int(one_device) == 4 * 1024**3
    assert lock(domain={"devices": {}}) == []


def test_devices_of_one_resource_are_counted_over_both_lists() -> None:
    devices = {
        "gpus": [{"name": "a", "deviceName": GPU}, {"name": "b", "deviceName": GPU}],
        "hostDevices": [{"name": "c", "deviceName": GPU}],
    }
    resources = made(domain={"devices": devices})["spec"]["containers"][0]["resources"]
    assert resources["limits"][GPU] == resources["requests"][GPU] == "3"


def test_one_gibibyte_for_any_number_of_devices() -> None:
    none = overhead(vmi(domain={"devices": {}}).spec)
    assert overhead(vmi().spec) - none == 1024**3
    assert none == 8388609 + (220 + 16 + 8 + 32) * 1024**2


def test_the_pod_security_level_restricted_takes_it() -> None:
    spec = made()["spec"]
    container = spec["containers"][0]["securityContext"]
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec["securityContext"]["runAsUser"] == 107
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    kinds = {key for volume in spec["volumes"] for key in volume if key != "name"}
    assert kinds <= {"configMap", "emptyDir", "image"}


def test_the_vmi_travels_in_a_config_map_that_goes_with_its_pod() -> None:
    config = pod.config_map(vmi(), pod.PodSettings(image="x"), {"name": "vm-vm1", "uid": "u"})
    assert config["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "vm-vm1", "uid": "u"}]
    assert parse_manifest(json.loads(config["data"]["vmi.json"])) == vmi()
    mount = made()["spec"]["volumes"][0]
    assert mount == {"name": "vmi", "configMap": {"name": config["metadata"]["name"]}}


def test_kernel_boot_and_container_disks_are_image_volumes() -> None:
    boot = {"kernelBoot": {"container": {"image": "localhost/kernel:1", "kernelPath": "/boot/k", "imagePullPolicy": "Never"}}}
    disks = {"gpus": [], "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    spec = made(domain={"firmware": boot, "devices": disks}, volumes=[{"name": "root", "containerDisk": {"image": "localhost/disk:1"}}])[
        "spec"
    ]
    assert {"name": "kernel-boot", "image": {"reference": "localhost/kernel:1", "pullPolicy": "Never"}} in spec["volumes"]
    assert {"name": "disk-root", "image": {"reference": "localhost/disk:1"}} in spec["volumes"]
    assert {"name": "kernel-boot", "mountPath": "/var/run/vfio-passthrough/kernel-boot", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]


def test_dedicated_cpus_need_no_label_of_the_node() -> None:
    spec = made_of({"memory": {"guest": "1Gi"}, "cpu": {"cores": 2, "dedicatedCpuPlacement": True}})
    assert "nodeSelector" not in spec
    assert spec["containers"][0]["resources"]["limits"]["cpu"] == "2"


@pytest.mark.parametrize(("dedicated", "on"), [(True, True), (True, False), (False, True)])
def test_devices_are_placed_by_numa_node_where_the_gate_is_open(dedicated: bool, on: bool) -> None:
    settings = pod.PodSettings(image="x", gates=open_gates(["PCINUMAAwareTopology"] if on else []))
    placed = vmi(domain={"cpu": {"cores": 2, "dedicatedCpuPlacement": dedicated}})
    env = {one["name"]: one["value"] for one in pod.launcher_pod(placed, settings)["spec"]["containers"][0]["env"]}
    assert env.get("HOSTDEV_BY_NUMA") == ("true" if dedicated and on else None)


def test_an_architecture_and_spread_choose_the_node() -> None:
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    spec = made(architecture="amd64", topologySpreadConstraints=spread)["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert spec["topologySpreadConstraints"] == spread


@pytest.mark.parametrize("trick", ["<a/>", "a b; rm -rf /", "../../x", "\u202egpj", 'a",\n"b', "$(id)"])
def test_texts_of_the_manifest_stay_one_value(trick: str) -> None:
    devices = {"gpus": [{"name": "g", "deviceName": GPU, "tag": trick}], "disks": [{"name": "d", "serial": trick}]}
    run = VirtualMachineInstance(metadata=Metadata(name="v", annotations={trick: trick}), spec=spec_of({"domain": {"devices": devices}}))
    text = pod.config_map(run, pod.PodSettings(image="x"))["data"]["vmi.json"]
    shown = json.loads(text)["spec"]["domain"]["devices"]
    assert (shown["gpus"][0]["tag"], shown["disks"][0]["serial"]) == (trick, trick)
    plain = pod.launcher_pod(run, pod.PodSettings(image="x"))
    assert plain["metadata"]["annotations"].pop(trick) == trick
    assert trick not in json.dumps(plain, ensure_ascii=False)


def test_placement_is_passed_through_and_grace_leaves_the_launcher_time() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    spec = made(nodeSelector={"a": "b"}, tolerations=tolerations, terminationGracePeriodSeconds=10)["spec"]
    assert (spec["nodeSelector"], spec["tolerations"], spec["terminationGracePeriodSeconds"]) == ({"a": "b"}, tolerations, 40)
    assert "affinity" not in spec


def test_equal_input_gives_equal_objects_and_another_image_another_digest() -> None:
    assert made() == made()
    assert pod.vmi_digest(vmi(), pod.PodSettings(image="a")) != pod.vmi_digest(vmi(), pod.PodSettings(image="b"))


def test_a_resource_that_nobody_declared_is_refused_with_what_is_declared() -> None:
    with pytest.raises(Refused) as caught:
        pod.launcher_pod(vmi(), pod.PodSettings(image="x", declared=["nvidia.com/GA102GL_A1O"]))
    assert caught.value.subject == "spec.domain.devices.gpus[0]"
    assert f"GPU {GPU} is not permitted" in caught.value.cause
    assert "nvidia.com/GA102GL_A1O" in caught.value.hint


def test_long_names_and_virtual_machines_are_refused_by_name() -> None:
    with pytest.raises(Refused, match="50 characters"):
        pod.object_name(pod.instance_of(parse_manifest({**document(), "metadata": {"name": "v" * 50}})))
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm1"}}
    spec = {"runStrategy": "Always", "template": {"spec": document()["spec"]}}
    with pytest.raises(Unsupported, match="VirtualMachineInstance only"):
        pod.instance_of(parse_manifest({**machine, "spec": spec}))

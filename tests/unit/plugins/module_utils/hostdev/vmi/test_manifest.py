"""Manifests: what is served comes through whole, everything else is refused by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.machine import VirtualMachine
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import RESOURCE, machine, manifest, with_gpus

EXAMPLES = Path(__file__).parents[6] / "examples"


def refusal(document: Any) -> str:
    with pytest.raises(Refused) as caught:
        parse_manifest(document)
    return str(caught.value)


def instance(document: dict[str, Any]) -> VirtualMachineInstance:
    value = parse_manifest(document)
    assert isinstance(value, VirtualMachineInstance)
    return value


FULL: dict[str, Any] = {
    "domain": {
        "devices": {
            "gpus": [{"name": "g", "deviceName": RESOURCE, "virtualGPUOptions": {"display": {"enabled": True, "ramFB": {}}}}],
            "hostDevices": [{"name": "h", "deviceName": RESOURCE}],
            "disks": [
                {"name": "a", "disk": {"bus": "virtio", "readonly": True}, "bootOrder": 2, "serial": "s", "cache": "none"},
                {"name": "b", "cdrom": {"bus": "sata", "readonly": False}},
            ],
            "rng": {},
            "autoattachSerialConsole": True,
            "logSerialConsole": False,
            "autoattachGraphicsDevice": False,
            "autoattachPodInterface": False,
            "autoattachMemBalloon": False,
        },
        "memory": {"guest": "1Gi"},
        "resources": {"requests": {"memory": "2Gi", "cpu": "500m"}, "limits": {"memory": "3Gi", "cpu": "2"}},
        "cpu": {"cores": 2, "sockets": 1, "threads": 1, "model": "host-passthrough"},
        "machine": {"type": "pc-q35-7.2"},
        "firmware": {
            "bootloader": {"efi": {"secureBoot": False}},
            "kernelBoot": {"container": {"image": "i", "kernelPath": "/k", "initrdPath": "/r"}, "kernelArgs": "quiet"},
            "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223",
            "serial": "e4686d2c",
        },
    },
    "volumes": [{"name": "a", "emptyDisk": {"capacity": "1Gi"}}, {"name": "b", "containerDisk": {"image": "i", "path": "/disk/x"}}],
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"x": [{"y": 1}]}},
    "terminationGracePeriodSeconds": 0,
    "priorityClassName": "high",
    "schedulerName": "mine",
    "architecture": "amd64",
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_come_through_whole(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert parse_manifest(document).to_dict() == document


def test_all_served_fields_come_through_whole() -> None:
    document = {**manifest(), "spec": FULL}
    assert instance(document).to_dict() == document


def test_explicitly_empty_objects_stay() -> None:
    value = instance(with_gpus("g"))
    assert value.spec.domain.devices.rng is None
    document = manifest(devices={"rng": {}})
    assert instance(document).to_dict() == document


def test_null_counts_as_absent() -> None:
    assert instance(manifest(devices={"gpus": None, "rng": None})) == instance(manifest())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"devices": {"gpus": [{"name": "a", "deviceNam": "x.io/y"}]}},
            "spec.domain.devices.gpus[0].deviceNam: unknown field; nearest known: deviceName",
        ),
        ({"memmory": {}}, "spec.domain.memmory: unknown field; nearest known: memory"),
        ({"memory": {"guest": True}}, "spec.domain.memory.guest: has to be a quantity such as 256Mi, is a boolean (True)"),
        ({"memory": {"guest": "256MB"}}, "spec.domain.memory.guest: '256MB': not a number"),
        ({"memory": {"guest": "1Ki"}}, "spec.domain.memory.guest: 1Ki is too little"),
        ({"memory": {}}, "spec.domain.memory.guest: required, and absent"),
        ({"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}, "spec.domain.memory.maxGuest: memory hot-plug is not served"),
        ({"resources": {"limits": {"memory": "1Mi"}}}, "spec.domain.resources.limits.memory: 1Mi is less than the guest's 256Mi"),
        ({"cpu": {"cores": "2"}}, "spec.domain.cpu.cores: has to be a whole number, is text ('2')"),
        ({"cpu": {"cores": -1}}, "spec.domain.cpu.cores: has to be 0 or more, is -1"),
        ({"machine": {"type": "pc"}}, "spec.domain.machine.type: 'pc': has to be q35"),
        ({"devices": []}, "spec.domain.devices: has to be a mapping, is a list"),
        ({"devices": {"gpus": {}}}, "spec.domain.devices.gpus: has to be a list, is a mapping"),
        ({"devices": {"gpus": [{"deviceName": "x.io/y"}]}}, "spec.domain.devices.gpus[0].name: required, and absent"),
        ({"devices": {"gpus": [{"name": "a"}]}}, "spec.domain.devices.gpus[0].deviceName: required, and absent"),
        (
            {"devices": {"gpus": [{"name": "a.b", "deviceName": "x.io/y"}]}},
            "spec.domain.devices.gpus[0].name: 'a.b': becomes part of a libvirt alias",
        ),
        (
            {"devices": {"gpus": [{"name": "a", "deviceName": "y"}]}},
            "spec.domain.devices.gpus[0].deviceName: 'y': it has to be DOMAIN/NAME",
        ),
        (
            {"devices": {"gpus": [{"name": "a", "claimName": ""}]}},
            "spec.domain.devices.gpus[0].claimName: DRA claims are not served by this version",
        ),
        ({"devices": {"gpus": [{"name": "a", "deviceName": "x.io/y", "tag": "t"}]}}, "spec.domain.devices.gpus[0].tag: device tags"),
        (
            {"devices": {"hostDevices": [{"name": "a", "deviceName": "x.io/y", "virtualGPUOptions": {}}]}},
            "hostDevices[0].virtualGPUOptions: unknown field",
        ),
        ({"devices": {"interfaces": [{"name": "n", "masquerade": {}}]}}, "devices.interfaces[0].masquerade: guest networks are not served"),
        ({"devices": {"interfaces": [{"name": "n", "bridge": {}}]}}, "spec.domain.devices.interfaces[0].bridge: a bridge into the pod's"),
        ({"devices": {"interfaces": [{"name": "n", "pciAddress": "1:2"}]}}, "interfaces[0].pciAddress: '1:2': has to be a PCI address"),
        ({"devices": {"interfaces": [{"name": "n", "macAddress": "1:2"}]}}, "interfaces[0].macAddress: '1:2': has to be six bytes"),
        ({"devices": {"interfaces": [{"name": "n", "ports": [{"port": 65536}]}]}}, "ports[0].port: has to be 1 to 65535, is 65536"),
        ({"devices": {"tpm": {}}}, "spec.domain.devices.tpm: an emulated TPM is not served"),
        ({"devices": {"watchdog": {"name": "w"}}}, "spec.domain.devices.watchdog: an emulated watchdog is not served"),
        ({"memory": {"guest": "1Gi", "reservedOverhead": {"memLock": "Maybe"}}}, "memLock: has to be one of Required, NotRequired"),
        ({"resources": {"limits": {"x.io/y": 1}}}, "spec.domain.resources.limits.x.io/y: no entry of gpus or hostDevices asks for it"),
        (
            {"devices": {"gpus": [{"name": "a", "deviceName": "x.io/y"}]}, "resources": {"requests": {"x.io/y": "5"}}},
            "spec.domain.resources.requests.x.io/y: is 5, but 1 entries",
        ),
        ({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}, "requests.memory: 2Gi is more than the limit, 1Gi"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}, "requests.cpu: 2 is more than the limit, 1500m"),
        ({"resources": {"limits": {"cpu": "-1"}}}, "spec.domain.resources.limits.cpu: -1 is less than nothing"),
        ({"machine": {"type": "virt-6.2"}}, "spec.domain.machine.type: machines of arm64 are not served"),
        ({"devices": {"autoattachGraphicsDevice": True}}, "spec.domain.devices.autoattachGraphicsDevice: guest displays"),
        ({"devices": {"disks": [{"name": "d"}]}}, "spec.domain.devices.disks[0].name: 'd' is the name of no volume in spec.volumes"),
        ({"firmware": {"bootloader": {"bios": {}, "efi": {}}}}, "spec.domain.firmware.bootloader: is bios and efi"),
        ({"firmware": {"kernelBoot": {"container": {"image": "i"}}}}, "kernelBoot.container: kernelPath or initrdPath is required"),
        ({"firmware": {"kernelBoot": {"kernelArgs": "x"}}}, "kernelBoot.kernelArgs: there is no kernelPath"),
        ({"firmware": {"uuid": "x"}}, "spec.domain.firmware.uuid: 'x': "),
    ],
)
def test_refused_by_path(change: dict[str, Any], said: str) -> None:
    assert said in refusal(manifest(**change))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}, "spec.resourceClaims: DRA claims are not served by this version"),
        (
            {"volumes": [{"name": "v", "hostDisk": {"path": "/x", "type": "Disk"}}]},
            "hostDisk.path: '/x': has to be the absolute",
        ),
        (
            {"volumes": [{"name": "v", "hostDisk": {"path": "/a/../b", "type": "Disk"}}]},
            "hostDisk.path: '/a/../b': has to be",
        ),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "A/b"}}]}, "persistentVolumeClaim.claimName: 'A/b': has to be"),
        ({"volumes": [{"name": "v", "dataVolume": {"name": "d"}}]}, "name its claim in persistentVolumeClaim"),
        (
            {"volumes": [{"name": "v", "hostDisk": {"path": "/a/x", "type": "Disk"}}]},
            "hostDisk: a file of the node is not served",
        ),
        ({"volumes": [{"name": "v"}]}, "spec.volumes[0]: exactly one kind of volume has to be there, are 0"),
        ({"volumes": [{"name": "v", "emptyDisk": {"capacity": "1Mi"}}]}, "spec.volumes[0].name: 'v' is used by no disk"),
        ({"networks": [{"name": "n", "pod": {}}]}, "spec.networks[0].pod: guest networks are not served"),
        ({"networks": [{"name": "n", "multus": {"networkName": ""}}]}, "networks[0].multus.networkName: '': has to be"),
        ({"networks": [{"name": "n", "multus": {"networkName": "a/../b"}}]}, "networks[0].multus.networkName: 'a/../b': has to be"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]: has to be text, is a number (1)"),
        ({"terminationGracePeriodSeconds": -1}, "spec.terminationGracePeriodSeconds: has to be 0 or more"),
        ({"architecture": "arm64"}, "spec.architecture: guests of arm64 are not served"),
        ({"architecture": "s390x"}, "spec.architecture: has to be one of amd64, arm64"),
        ({"readinessProbe": {"exec": {}}}, "spec.readinessProbe: probes of the guest are not served"),
    ],
)
def test_refused_in_spec(spec: dict[str, Any], said: str) -> None:
    document = manifest()
    document["spec"].update(spec)
    assert said in refusal(document)


def test_two_devices_of_one_name_over_both_lists() -> None:
    said = refusal(with_gpus("one", "two", host_devices=("two",)))
    assert "spec.domain.devices.gpus[1].name: 'two' is also the name of spec.domain.devices.hostDevices[0]" in said


def test_two_resources_in_one_variable() -> None:
    devices = {"gpus": [{"name": "a", "deviceName": "nvidia.com/a_b"}, {"name": "b", "deviceName": "nvidia.com/a.b"}]}
    said = refusal(manifest(devices=devices))
    assert "spec.domain.devices.gpus[1].deviceName: nvidia.com/a.b and nvidia.com/a_b would share one variable" in said


def test_all_problems_in_one_message() -> None:
    said = refusal(manifest(memory={"gest": "1Gi"}, cpu={"cores": "x"}))
    assert "2 fields: spec.domain.memory.gest: unknown field; nearest known: guest; spec.domain.cpu.cores: has to be" in said


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 50])
def test_names_of_vms(name: str) -> None:
    document = manifest()
    document["metadata"]["name"] = name
    assert "metadata.name" in refusal(document)


@pytest.mark.parametrize("document", [None, [], {}, {"apiVersion": "v1", "kind": "Pod"}, {"apiVersion": "kubevirt.io/v1", "kind": "VMI"}])
def test_other_documents(document: Any) -> None:
    assert "cannot read a manifest" in refusal(document)


def test_defaults_are_answers_not_values() -> None:
    value = instance(with_gpus("g", host_devices=("h",)))
    assert value.spec.resources == {RESOURCE: 2}
    assert [device.name for dummy, device in value.spec.host_devices] == ["h", "g"]
    assert value.spec.grace_seconds == 30
    assert value.spec.domain.cpus == 1
    assert value.uuid == instance(manifest()).uuid


@pytest.mark.parametrize(
    ("domain", "topology"),
    [
        ({}, (1, 1, 1)),
        ({"cpu": {"cores": 4}}, (1, 4, 1)),
        ({"resources": {"requests": {"cpu": "1500m"}}}, (2, 1, 1)),
        ({"resources": {"limits": {"cpu": "3"}}}, (3, 1, 1)),
        ({"cpu": {"sockets": 2}, "resources": {"requests": {"cpu": "8"}}}, (2, 1, 1)),
        ({"cpu": {"model": "host-model"}, "resources": {"requests": {"cpu": "2"}}}, (2, 1, 1)),
    ],
)
def test_topology(domain: dict[str, Any], topology: tuple[int, int, int]) -> None:
    assert instance(manifest(**domain)).spec.domain.topology == topology


def test_memory_from_the_request() -> None:
    value = instance(manifest(memory={}, resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}))
    assert str(value.spec.domain.guest_memory) == "1Gi"


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        ({"running": True}, "Always"),
        ({"running": False}, "Halted"),
        ({"runStrategy": "Once"}, "Once"),
        ({"runStrategy": "RerunOnFailure"}, "RerunOnFailure"),
    ],
)
def test_machine(spec: dict[str, Any], strategy: str) -> None:
    document = machine(with_gpus("g"), **spec)
    value = parse_manifest(document)
    assert isinstance(value, VirtualMachine)
    assert value.to_dict() == document
    assert value.run_strategy == strategy
    assert value.instance().metadata.labels == {"app": "x"}
    assert (value.instance().name, value.instance().metadata.namespace) == ("guest", "demo")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "spec.runStrategy: exactly one of running and runStrategy"),
        ({"running": True, "runStrategy": "Always"}, "spec.runStrategy: exactly one of"),
        ({"runStrategy": "Manual"}, "spec.runStrategy: Manual: "),
        ({"runStrategy": "WaitAsReceiver"}, "spec.runStrategy: WaitAsReceiver: "),
        ({"runStrategy": "Sometimes"}, "spec.runStrategy: has to be one of"),
        ({"running": True, "instancetype": {"name": "x"}}, "spec.instancetype: instance types are not served"),
    ],
)
def test_machine_refused(spec: dict[str, Any], said: str) -> None:
    assert said in refusal(machine(manifest(), **spec))


def test_machine_names_the_path_of_its_template() -> None:
    said = refusal(machine(with_gpus("a", "a"), running=True))
    assert "spec.template.spec.domain.devices.gpus[1].name: 'a' is also the name of spec.template.spec.domain.devices.gpus[0]" in said

"""The pod's volumes: one row per kind of disk, and what its namespace has to allow."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.volumes import (
    Volumes,
    add_volumes,
    pull_secrets,
    security_level,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

WORK = "/var/run/vfio-passthrough"


def added(source: dict[str, Any], blocks: tuple[str, ...] = (), name: str = "v") -> Volumes:
    made = Volumes()
    add_volumes(made, spec_of({"volumes": [{"name": name, **source}]}), blocks)
    return made


@pytest.mark.parametrize(
    ("source", "volume", "place"),
    [
        (
            {"persistentVolumeClaim": {"claimName": "c"}},
            {"persistentVolumeClaim": {"claimName": "c"}},
            {"mountPath": f"{WORK}/claims/v"},
        ),
        (
            {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"mountPath": f"{WORK}/claims/v", "readOnly": True},
        ),
        (
            {"hostDisk": {"path": "/data/vm/disk.img", "type": "DiskOrCreate", "capacity": "1Gi"}},
            {"hostPath": {"path": "/data/vm", "type": "DirectoryOrCreate"}},
            {"mountPath": f"{WORK}/host-disks/v"},
        ),
        ({"configMap": {"name": "c"}}, {"configMap": {"name": "c"}}, {"mountPath": f"{WORK}/objects/v", "readOnly": True}),
        (
            {"secret": {"secretName": "s", "optional": True}},
            {"secret": {"secretName": "s", "optional": True}},
            {"mountPath": f"{WORK}/objects/v", "readOnly": True},
        ),
    ],
)
def test_a_disk_is_a_volume_and_a_mount(source: dict[str, Any], volume: dict[str, Any], place: dict[str, Any]) -> None:
    made = added(source)
    assert made.volumes == [{"name": "disk-v", **volume}]
    assert made.mounts == [{"name": "disk-v", **place}]


def test_a_claim_of_mode_block_is_a_device() -> None:
    made = added({"persistentVolumeClaim": {"claimName": "c"}}, ("c",))
    assert (made.mounts, made.devices) == ([], [{"name": "disk-v", "devicePath": "/dev/vfio-passthrough/v"}])


def test_cloud_init_mounts_its_secrets_and_no_text() -> None:
    parts = {"userData": "#cloud-config", "secretRef": {"name": "u"}, "networkDataSecretRef": {"name": "n"}}
    made = added({"cloudInitNoCloud": parts})
    assert [(one["name"], one["secret"]["secretName"]) for one in made.volumes] == [("userdata-v", "u"), ("networkdata-v", "n")]
    assert [one["mountPath"] for one in made.mounts] == [f"{WORK}/objects/v-userdata", f"{WORK}/objects/v-networkdata"]
    assert added({"cloudInitConfigDrive": {"userData": "x"}}).volumes == []


def test_long_names_stay_apart() -> None:
    names = [added({"configMap": {"name": "c"}}, name="v" * 62 + last).volumes[0]["name"] for last in ("a", "b")]
    assert len(set(names)) == len(names)
    assert {len(name) for name in names} == {63}


def test_a_file_of_the_node_alone_needs_a_privileged_namespace() -> None:
    disk = {"hostDisk": {"path": "/data/disk.img", "type": "Disk"}}
    assert security_level(spec_of({"volumes": [{"name": "v", **disk}]})) == "privileged"
    assert security_level(spec_of({"volumes": [{"name": "v", "configMap": {"name": "c"}}]})) == "restricted"


def test_images_are_pulled_with_their_secrets() -> None:
    boot = {"kernelBoot": {"container": {"image": "i", "kernelPath": "/k", "imagePullSecret": "a"}}}
    disks = [{"name": f"v{number}", "containerDisk": {"image": "i", "imagePullSecret": name}} for number, name in enumerate("aab")]
    spec = spec_of({"domain": {"firmware": boot, "memory": {"guest": "1Gi"}}, "volumes": disks})
    assert pull_secrets(spec) == ["a", "b"]
    pod = launcher_pod(VirtualMachineInstance(metadata=Metadata(name="n"), spec=spec), PodSettings(image="x"))
    assert pod["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]

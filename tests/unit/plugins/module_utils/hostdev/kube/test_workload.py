"""A VirtualMachine as a StatefulSet or a Job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import DIGEST, PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.workload import machine_config, objects, workload
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.machine import VirtualMachine
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import machine, manifest, with_gpus

SETTINGS = PodSettings(image="launcher:1")


def vm(**spec: Any) -> VirtualMachine:
    value = parse_manifest(machine(with_gpus("g"), **spec))
    assert isinstance(value, VirtualMachine)
    return value


def test_always_is_a_stateful_set_of_one_that_an_edit_does_not_restart() -> None:
    made = workload(vm(running=True), SETTINGS)
    assert made is not None
    assert (made["apiVersion"], made["kind"], made["metadata"]["name"]) == ("apps/v1", "StatefulSet", "vm-guest")
    assert (made["spec"]["replicas"], made["spec"]["updateStrategy"]) == (1, {"type": "OnDelete"})
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["selector"]["matchLabels"].items() <= made["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(("strategy", "tries"), [("RerunOnFailure", 2147483647), ("Once", 0)])
def test_a_run_is_a_job_that_never_has_two_guests(strategy: str, tries: int) -> None:
    made = workload(vm(runStrategy=strategy), SETTINGS)
    assert made is not None
    assert (made["apiVersion"], made["kind"], made["spec"]["backoffLimit"]) == ("batch/v1", "Job", tries)
    assert (made["spec"]["podReplacementPolicy"], made["spec"]["completions"], made["spec"]["parallelism"]) == ("Failed", 1, 1)
    assert (made["spec"]["suspend"], made["spec"]["template"]["spec"]["restartPolicy"]) == (False, "Never")


def test_stopped_keeps_the_object_and_halted_is_none() -> None:
    stopped = [workload(vm(runStrategy=strategy), SETTINGS, stopped=True) for strategy in ("Always", "Once")]
    assert [made and made["spec"].get("replicas", made["spec"].get("suspend")) for made in stopped] == [0, True]
    assert workload(vm(runStrategy="Halted"), SETTINGS) is None
    assert objects(vm(running=False), SETTINGS) == []


def test_the_template_is_the_pod_of_its_run() -> None:
    made = workload(vm(running=True), SETTINGS)
    pod = launcher_pod(vm(running=True).instance(), SETTINGS)
    assert made is not None
    template = made["spec"]["template"]
    assert template["spec"].keys() == pod["spec"].keys()
    assert {key for key in pod["spec"] if template["spec"][key] != pod["spec"][key]} == {"restartPolicy", "volumes"}
    assert template["metadata"]["annotations"] == pod["metadata"]["annotations"]
    assert template["metadata"]["annotations"][DIGEST]


def test_the_objects_of_a_machine_are_its_config_map_and_its_controller() -> None:
    config, made = objects(vm(running=True), SETTINGS)
    assert (config["kind"], made["kind"]) == ("ConfigMap", "StatefulSet")
    assert made["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    assert [one["kind"] for one in objects(parse_manifest(manifest()), SETTINGS)] == ["ConfigMap", "Pod"]


def test_an_edit_leaves_the_running_guest_its_own_config_map() -> None:
    def config(**spec: Any) -> Any:
        return machine_config(vm(**spec), SETTINGS, "u")

    changed = machine(with_gpus("g", "h"), running=True)
    edited = parse_manifest(changed)
    assert isinstance(edited, VirtualMachine)
    first, second = config(running=True), machine_config(edited, SETTINGS, "u")
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["ownerReferences"] == [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vm-guest", "uid": "u"}]
    assert config(runStrategy="Once")["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert "ownerReferences" not in objects(edited, SETTINGS)[0]["metadata"]


def test_equal_input_gives_equal_text() -> None:
    assert json.dumps(objects(vm(running=True), SETTINGS)) == json.dumps(objects(vm(running=True), SETTINGS))

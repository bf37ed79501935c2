from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vfio.passthrough.plugins.doc_fragments.declaration import ModuleDocFragment
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.holders import PROGRAM
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import PLUGIN_LOCK, PLUGIN_STATE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.plugins.modules import pci_binding, pci_info
from ansible_collections.vfio.passthrough.tests.fakes.kernel import GPUS, FakeKernel, demo_host

DEVICES = [{"resource": "nvidia.com/X", "select": {"id": "10de:2684"}}]


class Failed(Exception):
    pass


class Module:
    """As much of AnsibleModule as a module's work sees."""

    def __init__(self, spec: dict[str, Any], check: bool = False, **given: Any) -> None:
        self.params = {name: given.get(name, option.get("default")) for name, option in spec.items()}
        self.check_mode = check

    def fail_json(self, **result: Any) -> None:
        raise Failed(result)


def bind(kernel: FakeKernel, **given: Any) -> dict[str, Any]:
    return pci_binding.work(Module(pci_binding.SPEC, **given), kernel.root)


def test_check_mode_diff_and_result_are_those_of_the_real_run(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    foreseen = bind(kernel, check=True, devices=DEVICES)
    assert kernel.writes == []
    done = bind(kernel, devices=DEVICES)
    assert (foreseen["changed"], foreseen["diff"]) == (done["changed"], done["diff"])
    assert set(foreseen) == set(done) == set(bind(kernel, state="released", check=True)) == set(bind(kernel, state="released"))


def test_a_refusal_fails_with_all_reasons_and_says_unchanged(tmp_path: Path) -> None:
    devices = [{"resource": "example.com/disk", "select": {"address": "0000:00:03.0"}}]
    with pytest.raises(Failed) as caught:
        bind(demo_host(tmp_path), devices=devices)
    result = caught.value.args[0]
    assert (result["changed"], result["fault"]["kind"], result["refused"][0]["reason"]) == (False, "refused", "system disk")


def test_a_missing_device_may_be_only_reported(tmp_path: Path) -> None:
    devices = [*DEVICES, {"resource": "example.com/other", "select": {"id": "1234:5678"}}]
    kernel = demo_host(tmp_path)
    with pytest.raises(Failed):
        bind(kernel, devices=devices)
    assert bind(kernel, devices=devices, missing="report")["missing"] == ["devices[1]"]
    assert {kernel.driver(name) for name in GPUS} == {"vfio-pci"}


def test_kubevirts_block_is_taken_as_it_stands(tmp_path: Path) -> None:
    block = {"pciHostDevices": [{"pciVendorSelector": "10DE:2684", "resourceName": "nvidia.com/X"}]}
    result = bind(demo_host(tmp_path), permitted_host_devices=block)
    assert [row["state"] for row in result["functions"]] == ["bound"] * 4


def test_info_tells_units_reasons_and_what_would_be_refused(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    before = pci_info.work(Module(pci_info.SPEC, devices=DEVICES), kernel.root)
    assert [one["reason"] for one in before["skipped"]] == ["not-bound", "not-bound"]
    bind(kernel, devices=DEVICES)
    after = pci_info.work(Module(pci_info.SPEC, devices=DEVICES), kernel.root)
    assert [one["health"] for one in after["units"]] == ["Healthy", "Healthy"]
    assert (after["refused"], after["iommu"]["code"], after["changed"]) == ([], "IOMMU_OK", False)
    everything = pci_info.work(Module(pci_info.SPEC), kernel.root)
    assert "0000:00:03.0" in [one["address"] for one in everything["functions"]]
    assert "0000:00:00.0" not in [one["address"] for one in everything["functions"]]


def test_a_pod_keeps_its_device_unless_the_release_is_forced(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    bind(kernel, devices=DEVICES)
    held = {"resource": "nvidia.com/X", "id": "10", "namespace": "default", "pod": "vm-a", "container": "compute"}
    kernel.answers[PROGRAM] = json.dumps({"holders": [held]})
    for check in (True, False):
        with pytest.raises(Busy, match=r"pod default/vm-a holds 0000:01:00.0 \(unit 10 of nvidia.com/X\)"):
            bind(kernel, state="released", check=check, kubelet_root="/k")
    assert kernel.commands[-1] == [PROGRAM, "holders", "--format", "json", "--kubelet-root", "/k"]
    assert {kernel.driver(name) for name in GPUS} == {"vfio-pci"}
    states = {row["address"]: row["state"] for row in bind(kernel)["functions"]}
    assert [states[name] for name in GPUS] == ["in use", "in use", "released", "released"]
    assert bind(kernel, state="released", force=True)["changed"]
    assert {kernel.driver(name) for name in GPUS} == {"nvidia", "snd_hda_intel"}


def test_info_tells_what_the_plugin_serves_and_who_holds_it(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    assert pci_info.work(Module(pci_info.SPEC), kernel.root)["plugin"]["running"] is False
    unit = {"kind": "usb", "resource": "a.com/key", "id": "1-1", "name": "1-1", "health": "Healthy", "reason": ""}
    kernel.host.write(PLUGIN_STATE, json.dumps({"units": [unit], "skipped": [{"address": "1-2", "reason": "incomplete-bundle"}]}))
    kernel.answers[PROGRAM] = json.dumps({"holders": [{"resource": "a.com/key", "id": "1-1", "namespace": "default", "pod": "vm-a"}]})
    # of a service that was killed
    assert not pci_info.work(Module(pci_info.SPEC), kernel.root)["plugin"]["running"]
    with alone(kernel.root.at(PLUGIN_LOCK)):
        told = pci_info.work(Module(pci_info.SPEC), kernel.root)["plugin"]
    assert (told["running"], told["skipped"][0]["reason"]) == (True, "incomplete-bundle")
    assert told["units"][0]["holders"] == [{"namespace": "default", "pod": "vm-a", "container": ""}]


@pytest.mark.parametrize("module", [pci_binding, pci_info])
def test_documentation_names_every_option_and_key(tmp_path: Path, module: Any) -> None:
    told = yaml.safe_load(module.DOCUMENTATION)
    assert told["extends_documentation_fragment"] == ["vfio.passthrough.declaration"]
    shared = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    assert {*told.get("options", {}), *shared} == set(module.SPEC)
    assert not set(told.get("options", {})) & set(shared)
    result = module.work(Module(module.SPEC, devices=DEVICES), demo_host(tmp_path).root)
    assert set(result) - {"changed"} == set(yaml.safe_load(module.RETURN)) - {"fault"}

"""The program hostdev: what its commands print, and how faults end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev import cli
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.version import __version__
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.manifests import machine, manifest
from ansible_collections.vfio.passthrough.tests.fakes.podresources import PLUGINS, FakePodResources, answer, entry, store

TREE = Path(__file__).parents[5]
EXAMPLE = str(TREE / "examples/gpu-vm.yaml")
VARIABLE = "PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    host = FakeHost(tmp_path / "host")
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.function("0000:02:00.0", driver="nvidia", group="17")
    host.node("16")
    monkeypatch.setattr(cli, "Root", lambda: host.root)
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"devices": [{"resource": "nvidia.com/GPU", "select": {"id": "10de:2684"}}]}), encoding="utf-8")
    return file


def test_devices_as_a_table_gives_each_device_a_reason(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--format", "table"), ("--format", "text")):
        assert cli.main(["devices", "--config", str(config), *words]) == 0
        head, unit, skipped, *notes = capsys.readouterr().out.splitlines()
        assert head.split() == ["DEVICE", "RESOURCE", "KIND", "UNIT", "NUMA", "STATE", "HOLDER", "WHY"]
        assert unit.split() == ["0000:01:00.0", "nvidia.com/GPU", "pci", "16", "-", "Healthy", "?"]
        assert skipped.split()[:6] == ["0000:02:00.0", "nvidia.com/GPU", "pci", "-", "-", "not-bound"]
        assert "bound to the host's driver nvidia -> run site.yml: it binds 0000:02:00.0 to vfio-pci" in skipped
        assert notes[0] == ""
        assert notes[1].startswith("the device plugin does not run here")
        assert notes[2].startswith("holders are not known: cannot ask the kubelet: ")


def test_devices_as_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "--config", str(config), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["source"], [one["state"] for one in told["devices"]]) == (1, "machine", ["Healthy", "not-bound"])


def test_holders_lists_what_containers_hold(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path_factory.mktemp("h")
    monkeypatch.setattr(cli, "Root", lambda: FakeHost(base).root)
    kubelet = FakePodResources(base, pods=[("default/vm-a", "compute", "nvidia.com/GPU", ["16"]), ("x/y", "main", "other.com/z", ["1"])])
    store(base / PLUGINS.lstrip("/"), entry("nvidia.com/GPU", ["16"], answer({"PCI_RESOURCE_NVIDIA_COM_GPU": "0000:01:00.0"})))
    kubelet.start()
    try:
        assert cli.main(["holders"]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["POD", "CONTAINER", "RESOURCE", "ID", "DEVICE"],
            ["default/vm-a", "compute", "nvidia.com/GPU", "16", "0000:01:00.0"],
            ["x/y", "main", "other.com/z", "1", "-"],
        ]
        assert cli.main(["holders", "--format", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [(one["namespace"], one["pod"], one["id"]) for one in told["holders"]] == [("default", "vm-a", "16"), ("x", "y", "1")]
    finally:
        kubelet.stop()


@pytest.mark.usefixtures("config")
def test_holders_that_cannot_be_asked_are_no_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["holders", "--format", "json", "--kubelet-root", "/other"]) == 1
    out, err = capsys.readouterr()
    assert (out, "/other/pod-resources/kubelet.sock: no such socket" in err) == ("", True)


def test_explain_ends_with_3_while_something_is_broken(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--config", str(config), "--format", "json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["arrived"] == 0
    assert len(told["broken"]) == len(told["chains"]) == 2


@pytest.mark.parametrize(("missing", "code"), [((), 3), (("--missing", "fail"), 3), (("--missing", "report", "--wait", "3600"), 0)])
def test_explain_does_not_wait_for_a_device_that_may_be_missing(
    config: Path, capsys: pytest.CaptureFixture[str], missing: tuple[str, ...], code: int
) -> None:
    config.write_text(json.dumps({"devices": [{"resource": "a.com/x", "select": {"id": "10de:ffff"}}]}), encoding="utf-8")
    assert cli.main(["explain", "--config", str(config), *missing]) == code
    assert "no PCI function of this node has id 10de:ffff" in capsys.readouterr().out


def test_domain_takes_the_addresses_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(VARIABLE, "0000:65:00.0")
    assert cli.main(["domain", EXAMPLE, "--emulation", "always"]) == 0
    text = capsys.readouterr().out
    assert '<domain type="qemu">' in text
    assert '<address domain="0x0000" bus="0x65" slot="0x00" function="0x0"/>' in text


def test_domain_and_pod_take_the_run_of_a_virtual_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vm.json"
    file.write_text(json.dumps(machine(manifest(), running=True)), encoding="utf-8")
    assert cli.main(["domain", str(file)]) == 0
    assert "<name>demo_guest</name>" in capsys.readouterr().out
    assert cli.main(["pod", str(file)]) == 0
    assert [made["kind"] for made in yaml.safe_load_all(capsys.readouterr().out)] == ["ConfigMap", "StatefulSet"]


def test_pod_prints_the_objects_that_are_created(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pod", EXAMPLE, "--image", "launcher:1"]) == 0
    config_map, pod = yaml.safe_load_all(capsys.readouterr().out)
    assert (config_map["kind"], pod["kind"]) == ("ConfigMap", "Pod")
    assert pod["spec"]["containers"][0]["image"] == "launcher:1"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["devices", "--config", "/nonexistent/devices.json"], "no such file"),
        (["domain", "/nonexistent/vm.yaml"], "cannot read a manifest: /nonexistent/vm.yaml"),
        (["domain", EXAMPLE], f"{VARIABLE} is not set"),
    ],
)
def test_a_fault_is_one_line_on_standard_error(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hostdev: cannot ")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "cause"), [("{", "not JSON"), ("a: [", "not one YAML document"), ("a: 1\n---\nb: 2\n", "not one YAML document")]
)
def test_broken_manifests_say_what_is_wrong(tmp_path: Path, text: str, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(text, encoding="utf-8")
    assert cli.main(["pod", str(file)]) == 1
    assert cause in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == __version__

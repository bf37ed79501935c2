"""The device plugin's two forms are one plugin with the same rights; what its pod sees of the host are folders at their own paths."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.cli import parser
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.handover import handover_folder
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.daemonset import workload_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.notify import Pulse
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.tests.unit.structure.test_units import rendered, settings
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

PROGRAM = "/usr/bin/python3 -m hostdev.cli "


def definition(**given: Any) -> dict[str, Any]:
    """Return the DaemonSet as the role renders it."""
    values = yaml.safe_load((ROOT / "roles/device_plugin/defaults/main.yml").read_text(encoding="utf-8"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True)
    environment.filters["bool"] = bool
    template = environment.from_string((ROOT / "files/device_plugin/daemonset.yaml.j2").read_text(encoding="utf-8"))
    made: dict[str, Any] = yaml.safe_load(template.render({**values, "device_plugin_image": "localhost/plugin:1", **given}))
    return made


def container(**given: Any) -> dict[str, Any]:
    """Return its one container."""
    [found] = definition(**given)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_it_is_what_the_module_takes() -> None:
    made = workload_of(definition())
    assert made.title == "kube-system/vfio-passthrough-device-plugin"
    assert made.node_labels == {"vfio-passthrough/device-plugin": "true"}
    # two instances on a node must never overlap, and the play decides when a node gets a new one
    assert made.definition["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize("metrics", ["", "127.0.0.1:9810", "[::1]:9810"])
def test_both_forms_run_the_program_with_the_same_options(metrics: str) -> None:
    given = {"device_plugin_folder": "/srv/kubelet/device-plugins", "device_plugin_metrics": metrics}
    [command] = settings(rendered(**given))["ExecStart"]
    arguments = command.removeprefix(PROGRAM).split()
    assert arguments == ["device-plugin", *container(**given)["args"]]
    options = parser().parse_args(arguments)
    assert (options.plugin_folder, options.metrics) == tuple(given.values())


def test_both_forms_have_the_same_rights() -> None:
    [bounds] = settings(rendered())["CapabilityBoundingSet"]
    context = container()["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": [name.removeprefix("CAP_") for name in bounds.split()]}
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert "privileged" not in context
    assert settings(rendered())["SELinuxContext"] == [f"-{':'.join(context['seLinuxOptions'].values())}"]


def test_a_privileged_container_asks_for_nothing_that_contradicts_it() -> None:
    context = container(device_plugin_privileged=True)["securityContext"]
    assert context["privileged"] is True
    assert not {"capabilities", "allowPrivilegeEscalation", "seccompProfile"} & set(context)


def test_the_pod_is_in_the_hosts_namespaces_and_has_no_account() -> None:
    spec = definition()["spec"]["template"]["spec"]
    assert (spec["hostNetwork"], spec["hostPID"], spec["automountServiceAccountToken"]) == (True, True, False)
    assert (spec["priorityClassName"], spec["tolerations"]) == ("system-node-critical", [{"operator": "Exists"}])


def test_folders_of_the_host_are_at_their_own_paths() -> None:
    folder = "/srv/kubelet/device-plugins"
    volumes = {one["name"]: one["hostPath"] for one in definition(device_plugin_folder=folder)["spec"]["template"]["spec"]["volumes"]}
    mounts = container(device_plugin_folder=folder)["volumeMounts"]
    assert {one["name"]: one["mountPath"] for one in mounts} == {name: volume["path"] for name, volume in volumes.items()}
    # a single socket or node would be the old one after it was replaced
    assert {volume["type"] for volume in volumes.values()} <= {"", "Directory", "DirectoryOrCreate"}
    assert {one["mountPath"] for one in mounts if not one.get("readOnly")} == {PluginOptions().run_folder, folder}


def test_the_role_takes_away_all_that_the_plugin_keeps() -> None:
    tasks = yaml.safe_load((ROOT / "roles/device_plugin/tasks/absent.yml").read_text(encoding="utf-8"))
    options = PluginOptions()
    files = {str(one) for one in (options.state, options.lock, options.last_good, options.virt_handler)}
    assert set(tasks[-1]["loop"]) == {str(Path(options.config).parent), *files, options.grants, handover_folder(options.grants)}


def test_the_probe_waits_for_the_state_file() -> None:
    assert container()["startupProbe"]["exec"]["command"] == [
        "test",
        str(PluginOptions().state),
        "-nt",
        container()["terminationMessagePath"],
    ]


def test_the_pod_lives_while_the_loop_renews_the_time_of_its_lock(tmp_path: Path) -> None:
    shell, option, script = container()["livenessProbe"]["exec"]["command"]
    lock = tmp_path / "lock"
    told = script.replace(str(PluginOptions().lock), str(lock))
    assert told != script

    def lives() -> bool:
        return subprocess.run([shell, option, told], check=False, stderr=subprocess.DEVNULL).returncode == 0

    assert not lives()
    lock.touch()
    assert lives()
    os.utime(lock, (time.time() - 100, time.time() - 100))
    assert not lives()
    Pulse(lock).beat()
    assert lives()

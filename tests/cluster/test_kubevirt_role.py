"""Role kubevirt, by itself and in the playbooks, against a real API server that knows KubeVirt's kinds; no KubeVirt runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import ANNOTATION, GATE
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.kubevirt import Cluster, pci
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.harness.work import VENV_BIN, environment

GPU, NIC, STICK, KEY = "nvidia.com/A10", "example.com/nic", "example.com/stick", "example.com/key"
DEVICES: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2236"}},
    {"resource": NIC, "select": {"class": "0200"}},
    {"resource": STICK, "select": {"usb": {"vendor": "46f4", "product": "0001"}}},
    {"resource": KEY, "select": {"usb": {"port": "1-4"}}},
    {"resource": "nvidia.com/GRID_T4-1B", "select": {"mdev_type": "GRID T4-1B"}},
    {"resource": "example.com/tun", "node": "/dev/net/tun"},
]
THEIRS = {"pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/TU104GL_Tesla_T4"}
OTHERS = {
    "permittedHostDevices": {"pciHostDevices": [THEIRS], "usb": []},
    "developerConfiguration": {"featureGates": ["Snapshot"], "logVerbosity": {"virtAPI": 3}},
    "network": {"defaultNetworkInterface": "bridge"},
}


@dataclass(frozen=True)
class Play:
    """One run of ansible-playbook."""

    code: int
    out: str

    @property
    def changed(self) -> int:
        return sum(int(number) for number in re.findall(r"changed=(\d+)", self.out))

    @property
    def words(self) -> str:
        """Return the output without the line breaks of warnings."""
        return " ".join(self.out.split())


class Nodes:
    """Two hosts in an inventory, each this machine with a /sys of its own."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.folder, self.plane = folder, plane
        lines = [self._host("node-a", "8086:1572"), self._host("node-b", "15b3:1019", "1050:0407")]
        (folder / "inventory").write_text("\n".join(["[hostdev]", *lines, ""]), encoding="utf-8")

    def _host(self, name: str, nic: str, key: str = "") -> str:
        host = FakeHost(self.folder / name)
        host.function("0000:01:00.0", "10de:2236", "030200", group="1")
        host.function("0000:02:00.0", nic, "020000", group="2")
        if key:
            host.usb("1-4", key)
        python = self.folder / f"{name}-python"
        # the machine's tree is a made one for whatever the module reads, and for nobody else
        script = f'mount --bind {host.base}/sys /sys && exec {sys.executable} "$@"'
        python.write_text(f"#!/bin/sh\nexec unshare --mount --propagation private sh -c '{script}' sh \"$@\"\n", encoding="utf-8")
        python.chmod(0o755)
        return f"{name} ansible_connection=local ansible_become=false ansible_python_interpreter={python}"

    def play(self, *options: str, serial: int = 0, **variables: Any) -> Play:
        """Use the role as a play of a user does."""
        given = {"kubevirt_kubeconfig": str(self.plane.kubeconfig), "kubevirt_devices": DEVICES, **variables}
        role = {"role": "vfio.passthrough.kubevirt", "vars": given}
        play = {"hosts": "hostdev", "gather_facts": False, "serial": serial or 2, "roles": [role]}
        (self.folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
        return self.run("play.yml", *options)

    def last_play(self, playbook: str, first_task: str, *options: str, **variables: Any) -> Play:
        """Run a playbook of the collection from a task of its last play on: what is before it needs a machine of its own."""
        given = {"hostdev_kubeconfig": str(self.plane.kubeconfig), "hostdev_devices": DEVICES, **variables}
        return self.run(f"vfio.passthrough.{playbook}", "-e", json.dumps(given), "--start-at-task", first_task, *options)

    def run(self, playbook: str, *options: str) -> Play:
        command = [str(VENV_BIN / "ansible-playbook"), "-i", "inventory", *options, playbook]
        env = environment({"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INJECT_FACT_VARS": "false", "HOME": os.environ.get("HOME", "/")})
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        return Play(done.returncode, done.stdout + done.stderr)


@pytest.fixture(name="nodes")
def _nodes(tmp_path: Path, kubevirt_plane: ControlPlane) -> Nodes:
    return Nodes(tmp_path, kubevirt_plane)


BEGIN, END = "Permit the devices in KubeVirt, where that is asked for", "Say that the entries stay for the other hosts"
ASKED = {"hostdev_kubevirt": "true"}


def test_the_playbooks_merge_once_and_lead_back(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure(OTHERS)
    before = cluster.spec()
    looked = nodes.last_play("site", BEGIN, "--check", "--diff", **ASKED)
    assert (looked.code, looked.changed) == (0, 1), looked.out
    assert cluster.spec() == before
    made = nodes.last_play("site", BEGIN, "--diff", **ASKED)
    assert (made.code, made.changed) == (0, 1), made.out
    for shown in (looked, made):
        assert re.search(r'^\+ .*"resourceName": "nvidia.com/A10"', shown.out, re.MULTILINE), shown.out
    configuration = cluster.read()["spec"]["configuration"]
    assert configuration["permittedHostDevices"] == {
        # the card and the key that only node-b has are found there
        "pciHostDevices": [THEIRS, pci("10de:2236", GPU), pci("15b3:1019", NIC), pci("8086:1572", NIC)],
        "mediatedDevices": [
            {"mdevNameSelector": "GRID T4-1B", "resourceName": "nvidia.com/GRID_T4-1B", "externalResourceProvider": True},
        ],
        "usb": [
            {"resourceName": STICK, "selectors": [{"vendor": "46f4", "product": "0001"}], "externalResourceProvider": True},
            {"resourceName": KEY, "selectors": [{"vendor": "1050", "product": "0407"}], "externalResourceProvider": True},
        ],
    }
    assert configuration["developerConfiguration"] == {"featureGates": ["Snapshot", GATE], "logVerbosity": {"virtAPI": 3}}
    # a run that sees one node only does not forget the other
    again = nodes.last_play("site", BEGIN, "--limit", "node-a", **ASKED)
    assert (again.code, again.changed) == (0, 0), again.out
    limited = nodes.last_play("release_devices", END, "--limit", "node-a", **ASKED)
    assert (limited.code, limited.changed) == (0, 0), limited.out
    assert "KubeVirt's entries stay, since this run is limited to node-a" in limited.words
    back = nodes.last_play("release_devices", END, **ASKED)
    assert (back.code, back.changed) == (0, 1), back.out
    assert cluster.spec() == before
    assert ANNOTATION not in cluster.read()["metadata"].get("annotations", {})


def test_the_playbooks_leave_kubevirt_alone_unasked(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure({})
    assert nodes.last_play("site", BEGIN).code == 0
    assert cluster.read()["spec"] == {"configuration": {}}


def test_hosts_may_declare_different_devices(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure({"permittedHostDevices": {}})
    own = {"node-a": DEVICES[0], "node-b": {"resource": "example.com/gpu", "select": {"id": "10de:2236"}}}

    def declare(**devices: Any) -> dict[str, Any]:
        lists = {host.replace("_", "-"): listed for host, listed in devices.items()}
        return {"kubevirt_devices": "{{ " + json.dumps(lists) + "[inventory_hostname] }}"}

    def resources() -> list[str]:
        lists = cluster.read()["spec"]["configuration"]["permittedHostDevices"]
        return [one["resourceName"] for one in lists.get("pciHostDevices", [])]

    both = declare(node_a=[own["node-a"]], node_b=[own["node-b"]])
    made = nodes.play(serial=1, **both)
    assert (made.code, resources()) == (0, [GPU, "example.com/gpu"]), made.out
    again = nodes.play(serial=1, **both)
    assert (again.code, again.changed) == (0, 0), again.out
    other = declare(node_a=[], node_b=[own["node-b"]])
    limited = nodes.play("--limit", "node-a", **other)
    assert (limited.code, limited.changed) == (0, 0), limited.out
    less = nodes.play(serial=1, **other)
    assert (less.code, resources()) == (0, ["example.com/gpu"]), less.out


def test_the_first_list_is_told_by_a_warning_and_the_notes_are_shown(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure(None)
    vm = {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": "other.com/gpu"}]}}}
    cluster.write("VirtualMachineInstance", "vm1", vm)
    cluster.write("VirtualMachine", "vm2", {"template": {"spec": vm}})
    declared = [DEVICES[0]]
    made = nodes.play(kubevirt_devices=declared)
    assert (made.code, made.changed) == (0, 1), made.out
    assert "had no permittedHostDevices, which lets every resource pass" in made.words
    assert "kubevirt/vm1 asks for other.com/gpu; kubevirt/vm2 asks for other.com/gpu" in made.words
    back = nodes.play(kubevirt_devices=[])
    assert (back.code, back.changed) == (0, 1), back.out
    assert "has no permittedHostDevices any more, as before: every resource passes" in back.words
    assert cluster.read()["spec"] == {}


def test_a_refusal_of_the_role_names_both_entries(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure({"permittedHostDevices": {"pciHostDevices": [{"pciVendorSelector": "10DE:2236", "resourceName": GPU}]}})
    before = cluster.spec()
    play = nodes.play(kubevirt_devices=[DEVICES[0]])
    assert play.code != 0
    assert f"pciHostDevices 10de:2236 ({GPU}) beside pciHostDevices 10de:2236 ({GPU}) of KubeVirt kubevirt/kubevirt" in play.words
    assert cluster.spec() == before

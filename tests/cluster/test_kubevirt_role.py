"""Role kubevirt and its module against a real API server that knows KubeVirt's kinds; no KubeVirt runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy, Fault, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.api import Api
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import ANNOTATION, GATE, Merge, merge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt_api import KubeVirts, converge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import Wanted, wanted
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.kubevirt import crd_names, definitions
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.harness.work import VENV_BIN, environment

GPU, NIC, STICK = "nvidia.com/A10", "example.com/nic", "example.com/stick"
DEVICES: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2236"}},
    {"resource": NIC, "select": {"class": "0200"}},
    {"resource": STICK, "select": {"usb": {"vendor": "46f4", "product": "0001"}}},
    {"resource": "nvidia.com/GRID_T4-1B", "select": {"mdev_type": "GRID T4-1B"}},
    {"resource": "example.com/tun", "node": "/dev/net/tun"},
]
THEIRS = {"pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/TU104GL_Tesla_T4"}
OTHERS = {
    "permittedHostDevices": {"pciHostDevices": [THEIRS], "usb": []},
    "developerConfiguration": {"featureGates": ["Snapshot"], "logVerbosity": {"virtAPI": 3}},
    "network": {"defaultNetworkInterface": "bridge"},
}


def pci(device: str, resource: str) -> dict[str, Any]:
    return {"pciVendorSelector": device, "resourceName": resource, "externalResourceProvider": True}


@pytest.fixture(name="plane", scope="module")
def _plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return a cluster that knows KubeVirt's kinds and has its namespace."""
    control_plane.apply([*definitions(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}}])
    control_plane.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in crd_names()), "--timeout=60s")
    yield control_plane
    control_plane.kubectl("delete", "crd", *crd_names(), "--ignore-not-found")
    control_plane.kubectl("delete", "namespace", "kubevirt", "--wait=false")


class Cluster:
    """The KubeVirt object as its administrator has it, looked at and changed by kubectl."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def configure(self, configuration: dict[str, Any] | None, **metadata: Any) -> None:
        spec = {} if configuration is None else {"configuration": configuration}
        self.write("KubeVirt", "kubevirt", spec, **metadata)

    def write(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        meta = {"name": name, "namespace": "kubevirt", **metadata}
        text = json.dumps({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": meta, "spec": spec})
        self.plane.kubectl("create", "-f", "-", input=text)

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.get("kubevirt", "kubevirt", "-n", "kubevirt")
        return found

    def spec(self) -> str:
        """Return the object's spec as one text."""
        return json.dumps(self.read()["spec"], sort_keys=True)

    def patch(self, patch: dict[str, Any]) -> None:
        self.plane.kubectl("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type=merge", "-p", json.dumps(patch))

    def objects(self, kubeconfig: Path | None = None, name: str = "kubevirt") -> KubeVirts:
        return KubeVirts(Api(str(kubeconfig or self.plane.kubeconfig)), "kubevirt", name)

    def bring(self, *devices: dict[str, Any], dry_run: bool = False) -> Merge:
        return converge(self.objects(), wish(*devices), dry_run, sleep=lambda _seconds: None)


def wish(*devices: dict[str, Any]) -> Wanted:
    return wanted(parse_declaration(devices))


@pytest.fixture(name="cluster")
def _cluster(plane: ControlPlane) -> Iterator[Cluster]:
    yield Cluster(plane)
    for kind in ("kubevirts", "virtualmachines", "virtualmachineinstances"):
        plane.kubectl("delete", f"{kind}.kubevirt.io", "--all", "-n", "kubevirt", check=False)


# -- the role ---------------------------------------------------------------------------------------------------------


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
        lines = [self._host("node-a", "8086:1572"), self._host("node-b", "15b3:1019")]
        (folder / "inventory").write_text("\n".join(["[hostdev]", *lines, ""]), encoding="utf-8")

    def _host(self, name: str, nic: str) -> str:
        host = FakeHost(self.folder / name)
        host.function("0000:01:00.0", "10de:2236", "030200", group="1")
        host.function("0000:02:00.0", nic, "020000", group="2")
        python = self.folder / f"{name}-python"
        # the machine's tree is a made one for whatever the module reads, and for nobody else
        script = f'mount --bind {host.base}/sys /sys && exec {sys.executable} "$@"'
        python.write_text(f"#!/bin/sh\nexec unshare --mount --propagation private sh -c '{script}' sh \"$@\"\n", encoding="utf-8")
        python.chmod(0o755)
        return f"{name} ansible_connection=local ansible_become=false ansible_python_interpreter={python}"

    def play(self, *options: str, **variables: Any) -> Play:
        """Use the role as a play of a user does."""
        given = {"kubevirt_kubeconfig": str(self.plane.kubeconfig), "kubevirt_devices": DEVICES, **variables}
        role = {"role": "vfio.passthrough.kubevirt", "vars": given}
        (self.folder / "play.yml").write_text(json.dumps([{"hosts": "hostdev", "gather_facts": False, "roles": [role]}]), encoding="utf-8")
        command = [str(VENV_BIN / "ansible-playbook"), "-i", "inventory", *options, "play.yml"]
        env = environment({"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INJECT_FACT_VARS": "false", "HOME": os.environ.get("HOME", "/")})
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        return Play(done.returncode, done.stdout + done.stderr)


@pytest.fixture(name="nodes")
def _nodes(tmp_path: Path, plane: ControlPlane) -> Nodes:
    return Nodes(tmp_path, plane)


def test_the_role_merges_once_and_leads_back(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure(OTHERS)
    before = cluster.spec()
    looked = nodes.play("--check", "--diff")
    assert (looked.code, looked.changed) == (0, 1), looked.out
    assert cluster.spec() == before
    made = nodes.play("--diff")
    assert (made.code, made.changed) == (0, 1), made.out
    for shown in (looked, made):
        assert re.search(r'^\+ .*"resourceName": "nvidia.com/A10"', shown.out, re.MULTILINE), shown.out
    configuration = cluster.read()["spec"]["configuration"]
    assert configuration["permittedHostDevices"] == {
        # the card that only node-b has is found there
        "pciHostDevices": [THEIRS, pci("10de:2236", GPU), pci("15b3:1019", NIC), pci("8086:1572", NIC)],
        "mediatedDevices": [
            {"mdevNameSelector": "GRID T4-1B", "resourceName": "nvidia.com/GRID_T4-1B", "externalResourceProvider": True},
        ],
        "usb": [{"resourceName": STICK, "selectors": [{"vendor": "46f4", "product": "0001"}], "externalResourceProvider": True}],
    }
    assert configuration["developerConfiguration"] == {"featureGates": ["Snapshot", GATE], "logVerbosity": {"virtAPI": 3}}
    again = nodes.play()
    assert (again.code, again.changed) == (0, 0), again.out
    # a run that sees one node only does not forget the other
    limited = nodes.play("--limit", "node-a")
    assert (limited.code, limited.changed) == (0, 0), limited.out
    back = nodes.play(kubevirt_state="absent")
    assert (back.code, back.changed) == (0, 1), back.out
    assert cluster.spec() == before
    assert ANNOTATION not in cluster.read()["metadata"].get("annotations", {})


def test_the_first_list_is_told_by_a_warning_and_the_notes_are_shown(cluster: Cluster, nodes: Nodes) -> None:
    cluster.configure(None)
    vm = {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": "other.com/gpu"}]}}}
    cluster.write("VirtualMachineInstance", "vm1", vm)
    cluster.write("VirtualMachine", "vm2", {"template": {"spec": vm}})
    declared = [DEVICES[0]]
    looked = nodes.play("--check", kubevirt_devices=declared)
    made = nodes.play(kubevirt_devices=declared)
    for shown in (looked, made):
        assert (shown.code, shown.changed) == (0, 1), shown.out
        assert "had no permittedHostDevices, which lets every resource pass" in shown.words
        assert "kubevirt/vm1 asks for other.com/gpu; kubevirt/vm2 asks for other.com/gpu" in shown.words
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


# -- the module's work on the API server ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "configuration",
    [
        None,
        {},
        {"permittedHostDevices": {}},
        {"permittedHostDevices": {"pciHostDevices": []}, "developerConfiguration": {"featureGates": []}},
    ],
)
def test_any_object_is_restored(cluster: Cluster, configuration: dict[str, Any] | None) -> None:
    cluster.configure(configuration)
    before = cluster.spec()
    assert cluster.bring(*DEVICES, dry_run=True).patch
    assert cluster.spec() == before
    assert cluster.bring(*DEVICES).patch
    assert not cluster.bring(*DEVICES).patch
    assert converge(cluster.objects(), Wanted(), dry_run=False).patch
    assert cluster.spec() == before


def test_a_later_edit_of_our_entry_is_left_alone(cluster: Cluster) -> None:
    cluster.configure({})
    cluster.bring(DEVICES[0])
    edited = {**pci("10de:2236", "example.com/renamed")}
    cluster.patch({"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [edited]}}}})
    assert "changed or taken out by somebody" in cluster.bring(DEVICES[0]).notes[0]
    converge(cluster.objects(), Wanted(), dry_run=False)
    assert cluster.read()["spec"]["configuration"]["permittedHostDevices"] == {"pciHostDevices": [edited]}


class Raced(KubeVirts):
    """The API server with somebody who writes between our look and our patch, as often as there are entries."""

    cluster: Cluster
    entries: list[dict[str, Any]]

    def read(self) -> dict[str, Any]:
        found = super().read()
        if self.entries:
            there = found["spec"]["configuration"]["permittedHostDevices"].get("pciHostDevices", [])
            self.cluster.patch({"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [*there, self.entries.pop()]}}}})
        return found


def raced(cluster: Cluster, times: int) -> Raced:
    objects = Raced(Api(str(cluster.plane.kubeconfig)), "kubevirt", "kubevirt")
    objects.cluster = cluster
    objects.entries = [{"pciVendorSelector": f"1234:{number:04x}", "resourceName": "example.com/x"} for number in range(times)]
    return objects


def test_what_others_write_meanwhile_is_kept(cluster: Cluster) -> None:
    cluster.configure({"permittedHostDevices": {}})
    converge(raced(cluster, 2), wish(DEVICES[0]), dry_run=False, sleep=lambda _seconds: None)
    there = cluster.read()["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    assert [one["pciVendorSelector"] for one in there] == ["1234:0001", "1234:0000", "10de:2236"]


def test_conflicts_without_an_end_are_told(cluster: Cluster) -> None:
    cluster.configure({"permittedHostDevices": {}})
    with pytest.raises(Busy, match="the object has been modified"):
        converge(raced(cluster, 50), wish(DEVICES[0]), dry_run=False, sleep=lambda _seconds: None)


def test_a_patch_of_an_older_version_is_refused_by_the_server(cluster: Cluster) -> None:
    cluster.configure({})
    old = merge(cluster.objects().read(), wish(DEVICES[0]))
    cluster.patch({"metadata": {"labels": {"touched": "yes"}}})
    with pytest.raises(Busy):
        cluster.objects().patch(old.patch, dry_run=False)


def test_another_object_or_none_is_told(cluster: Cluster) -> None:
    with pytest.raises(Absent, match="create the KubeVirt object first"):
        cluster.objects().read()
    cluster.configure({})
    with pytest.raises(Absent, match="one that exists: kubevirt/kubevirt"):
        cluster.objects(name="main").read()


@pytest.mark.parametrize(("verbs", "lacking"), [([], "get"), (["get"], "patch")])
def test_a_verb_that_the_account_lacks_is_named(cluster: Cluster, verbs: list[str], lacking: str) -> None:
    cluster.configure({"permittedHostDevices": {}})
    name = f"lacks-{lacking}"
    rules = [{"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": verbs}] if verbs else []
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    meta = {"name": name, "namespace": "kubevirt"}
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
    cluster.plane.apply(
        [{**kinds, "kind": "Role", "rules": rules}, {**kinds, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}]
    )
    objects = cluster.objects(cluster.plane.user_kubeconfig(name))
    with pytest.raises(Refused, match=rf"give this account the verb {lacking} on kubevirts\.kubevirt\.io"):
        converge(objects, wish(DEVICES[0]), dry_run=True)


def test_who_may_not_list_vms_still_gets_the_entries(cluster: Cluster) -> None:
    cluster.configure({})
    name = "no-lists"
    cluster.plane.kubectl("create", "role", name, "-n", "kubevirt", "--verb=get,patch", "--resource=kubevirts.kubevirt.io")
    cluster.plane.kubectl("create", "rolebinding", name, "-n", "kubevirt", f"--role={name}", f"--user={name}")
    done = converge(cluster.objects(cluster.plane.user_kubeconfig(name)), wish(DEVICES[0]), dry_run=False)
    assert "give this account the verb list on virtualmachines.kubevirt.io" in done.warnings[0]
    assert cluster.read()["spec"]["configuration"]["permittedHostDevices"] == {"pciHostDevices": [pci("10de:2236", GPU)]}


def test_a_schema_without_usb_is_found_before_anything_is_written(cluster: Cluster) -> None:
    cluster.configure({"permittedHostDevices": {}})
    cluster.plane.apply(definitions(usb=False))
    try:
        # the API server takes up another schema a moment later
        cluster.plane.children.wait_for("the older schema", lambda: _refused(cluster))
        assert cluster.read()["spec"] == {"configuration": {"permittedHostDevices": {}}}
    finally:
        cluster.plane.apply(definitions())
        cluster.plane.children.wait_for("the newer schema", lambda: not _refused(cluster))


def _refused(cluster: Cluster) -> bool:
    try:
        cluster.bring(DEVICES[2], dry_run=True)
    except Unsupported:
        return True
    return False


def test_a_cluster_without_kubevirt_is_told(cluster: Cluster) -> None:
    cluster.plane.kubectl("delete", "crd", *crd_names())
    try:
        # and so it does without the kind
        cluster.plane.children.wait_for("the end of the kinds", lambda: "KubeVirt is not installed" in _said(cluster))
    finally:
        cluster.plane.apply(definitions())
        cluster.plane.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in crd_names()), "--timeout=60s")
        cluster.plane.children.wait_for("the kinds again", lambda: "create the KubeVirt object first" in _said(cluster))


def _said(cluster: Cluster) -> str:
    try:
        cluster.objects().read()
    except Fault as fault:
        return fault.text()
    return ""

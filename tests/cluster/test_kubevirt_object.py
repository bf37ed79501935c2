"""What module kubevirt_permitted_devices does on a real API server that knows KubeVirt's kinds."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy, Fault, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.api import Api
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import merge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt_api import KubeVirts, converge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import Wanted
from ansible_collections.vfio.passthrough.tests.cluster.kubevirt import Cluster, crd_names, definitions, install, pci, wish

GPU = "nvidia.com/A10"
DEVICES: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2236"}},
    {"resource": "nvidia.com/GRID_T4-1B", "select": {"mdev_type": "GRID T4-1B"}},
    {"resource": "example.com/stick", "select": {"usb": {"vendor": "46f4", "product": "0001"}}},
]


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
    edited = pci("10de:2236", "example.com/renamed")
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
        install(cluster.plane)
        cluster.plane.children.wait_for("the kinds again", lambda: "create the KubeVirt object first" in _said(cluster))


def _said(cluster: Cluster) -> str:
    try:
        cluster.objects().read()
    except Fault as fault:
        return fault.text()
    return ""

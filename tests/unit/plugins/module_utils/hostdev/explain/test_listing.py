"""What `hostdev devices` lists, for every kind, with the plugin's service and without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.facts import Where
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.listing import read_listing, table
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import PLUGIN_LOCK, PLUGIN_STATE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.past import Past
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.roster import merge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.state import state_text
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.podresources import PLUGINS, FakePodResources, answer, entry, store

GPU, VGPU, KEY, KVM = "nvidia.com/GPU", "nvidia.com/T4-1Q", "a.com/key", "devices.kubevirt.io/kvm"
UUID = "53764d0e-85a0-42b4-af5c-2046b460b1dc"
ENTRIES: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2684"}},
    {"resource": VGPU, "select": {"mdev_type": "GRID T4-1Q"}},
    {"resource": KEY, "select": {"usb": {"vendor": "0529", "product": "0001"}}},
    {"resource": KVM, "node": "/dev/kvm", "count": 100},
]
DECLARATION = parse_declaration(ENTRIES)


@pytest.fixture(name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHost]:
    host = FakeHost(tmp_path_factory.mktemp("l"))
    host.function("0000:01:00.0", driver="vfio-pci", group="16", files={"numa_node": "0\n"})
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="16")
    host.function("0000:02:00.0", driver="nvidia", group="17")
    host.function("0000:65:00.0", "10de:1eb8", "030200", driver="nvidia", group="1")
    host.mdev(UUID, group="30")
    host.usb("1-4.2", "0529:0001", device=5)
    host.char("/dev/kvm")
    for group in ("16", "30"):
        host.node(group)
    # as a service that runs: where one left a state file, it is believed
    with alone(host.root.at(PLUGIN_LOCK)):
        yield host


@pytest.fixture(name="kubelet")
def _kubelet(host: FakeHost) -> Iterator[FakePodResources]:
    kubelet = FakePodResources(host.base)
    kubelet.start()
    yield kubelet
    kubelet.stop()


def rows(host: FakeHost, entries: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, dict[str, Any]]:
    found = read_listing(host.root, parse_declaration(entries or ENTRIES, **more), Where())
    return {f"{one['resource']} {one['device']}": one for one in found["devices"]}


def served(host: FakeHost, former: tuple[Offer, ...] = (), resources: Sequence[dict[str, Any]] = ()) -> tuple[Offer, ...]:
    """Write the state file that a service would write, which offered `former` before."""
    offers = merge(host.root, former, find(host.root, DECLARATION, former), lambda *_all: True)
    past = Past(host.base / PLUGINS.lstrip("/"), lambda: 0.0)
    past.take(offers, changed=True)
    host.write(PLUGIN_STATE, state_text(offers, find_skipped(host.root, DECLARATION), resources, "/g", past))
    return offers


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("service", [True, False])
def test_every_kind_has_its_row_and_its_name(host: FakeHost, service: bool) -> None:
    if service:
        served(host)
    told = rows(host)
    assert {key: (one["kind"], one["id"], one["numa_node"], one["state"], one["count"]) for key, one in told.items()} == {
        f"{GPU} 0000:01:00.0": ("pci", "16", 0, "Healthy", 1),
        f"{GPU} 0000:02:00.0": ("pci", "", None, "not-bound", 0),
        f"{VGPU} {UUID}": ("mdev", "30", None, "Healthy", 1),
        f"{KEY} 1-4.2": ("usb", "1-4.2", None, "Healthy", 1),
        f"{KVM} /dev/kvm": ("node", "kvm0", None, "Healthy", 100),
    }
    assert {one["holders"] == [] for one in told.values()} == {True}
    assert told[f"{GPU} 0000:01:00.0"]["why"] == "2 devices share group 16: one unit, with 0000:01:00.1"
    assert (told[f"{GPU} 0000:02:00.0"]["mend"] != "", told[f"{GPU} 0000:02:00.0"]["code"]) == (True, "not-bound")


def test_the_keys_are_the_same_in_every_row(host: FakeHost) -> None:
    host.unplug("1-4.2")
    told = rows(
        host,
        permitted={"pciHostDevices": [{"pciVendorSelector": "1002:0001", "resourceName": "o.com/x", "externalResourceProvider": True}]},
    )
    names = "code count device holders id kind mend numa_node position resource since state why"
    assert {" ".join(sorted(one)) for one in told.values()} == {names}


def test_holders_are_the_kubelets_word(host: FakeHost, kubelet: FakePodResources) -> None:
    kubelet.pods += [("default/vm-a", "compute", GPU, ["16"]), ("default/vm-a", "compute", KVM, ["kvm7"]), ("b/c", "main", KVM, ["kvm9"])]
    told = rows(host)
    assert told[f"{GPU} 0000:01:00.0"]["holders"] == [{"namespace": "default", "pod": "vm-a", "container": "compute"}]
    assert told[f"{VGPU} {UUID}"]["holders"] == []
    lines = table(read_listing(host.root, DECLARATION, Where()))
    cells = {line.split()[0]: line.split() for line in lines if line}
    assert cells["0000:01:00.0"][6] == "default/vm-a"
    assert " ".join(cells["/dev/kvm"][3:]) == "kvm0 (100 in all) - Healthy default/vm-a and 1 more"
    assert cells["1-4.2"][6] == "-"


def test_a_kubelet_that_cannot_be_asked_frees_nothing(host: FakeHost) -> None:
    found = read_listing(host.root, DECLARATION, Where())
    assert {one["holders"] is None for one in found["devices"] if one["id"]} == {True}
    assert found["holders_fault"].endswith("/pod-resources/kubelet.sock: no such socket")
    lines = table(found)
    assert [line for line in lines if line.startswith("holders are not known: cannot ask the kubelet")]
    assert lines[1].split()[6] == "?"


@pytest.mark.usefixtures("kubelet")
def test_the_services_reasons_are_told_where_it_runs(host: FakeHost) -> None:
    before = served(host)
    host.unplug("1-4.2")
    (host.base / "dev/vfio/16").unlink()
    served(host, before)
    found = read_listing(host.root, DECLARATION, Where())
    told = {one["device"]: one for one in found["devices"]}
    assert found["source"] == "service"
    assert (told["1-4.2"]["state"], told["1-4.2"]["code"]) == ("Unhealthy", "gone")
    assert told["1-4.2"]["why"] == "unplugged: no USB device is at port 1-4.2"
    assert "plug it in again" in told["1-4.2"]["mend"]
    assert (told["0000:01:00.0"]["code"], told["0000:01:00.0"]["why"]) == ("no-device-node", "/dev/vfio/16 does not exist")
    assert "none" not in told
    (line,) = [line for line in table(found) if line.startswith("0000:01:00.0")]
    assert "/dev/vfio/16 does not exist (since 1970-01-01T00:00:00Z) -> VFIO makes the node" in line


@pytest.mark.parametrize(("cause", "told"), [("", ""), ("waiting for the kubelet: no socket", ": waiting for the kubelet: no socket")])
def test_a_resource_that_the_kubelet_does_not_know_says_so(host: FakeHost, cause: str, told: str) -> None:
    host.bind(host.folder_of("0000:01:00.1"), "snd_hda_intel")
    served(host, (), [{"resource": name, "socket": "", "registered": name == KVM, "cause": cause} for name in (GPU, VGPU, KVM)])
    listed = rows(host)
    assert listed[f"{KVM} /dev/kvm"]["state"] == "Healthy"
    assert listed[f"{GPU} 0000:01:00.0"]["code"] == "group-not-viable"
    vgpu = listed[f"{VGPU} {UUID}"]
    assert (vgpu["state"], vgpu["code"], vgpu["why"]) == ("not-registered", "not-registered", f"not registered with the kubelet{told}")
    assert "is the kubelet up?" in vgpu["mend"]
    (line,) = [line for line in table(read_listing(host.root, DECLARATION, Where())) if line.startswith(UUID)]
    assert line.split()[5] == "not-registered"


def test_a_group_that_is_not_viable_has_one_row_with_its_mend(host: FakeHost) -> None:
    host.bind(host.folder_of("0000:01:00.1"), "snd_hda_intel")
    row = rows(host)[f"{GPU} 0000:01:00.0"]
    assert (row["state"], row["code"], row["mend"]) == (
        "Unhealthy",
        "group-not-viable",
        "run site.yml: companions move with the selected function",
    )
    assert row["why"] == "IOMMU group 16 is not viable: held by drivers of the host: 0000:01:00.1 snd_hda_intel"


def test_b30_a_renumbered_unit_names_the_pod_to_delete(host: FakeHost, kubelet: FakePodResources) -> None:
    store(host.base / PLUGINS.lstrip("/"), entry(GPU, ["18"], answer({"PCI_RESOURCE_NVIDIA_COM_GPU": "0000:01:00.0"})))
    kubelet.pods.append(("default/vm-a", "compute", GPU, ["18"]))
    for service in (False, True):
        if service:
            served(host)
        row = rows(host)[f"{GPU} 0000:01:00.0"]
        assert row["why"] == "renumbered: unit 18 was 0000:01:00.0 when the pod got it; 0000:01:00.0 is unit 16 now"
        assert row["mend"].startswith("delete pod default/vm-a: the kubelet gives this answer again")
    assert [one["ids"] for one in read_listing(host.root, DECLARATION, Where())["renumbered"]] == [["18"]]
    kubelet.pods.clear()
    assert not rows(host)[f"{GPU} 0000:01:00.0"]["why"].startswith("renumbered")


def test_a_state_file_of_another_release_is_read_as_far_as_it_goes(host: FakeHost) -> None:
    unit = {"kind": "pci", "resource": GPU, "id": "16", "name": "0000:01:00.0", "health": "Healthy", "reason": ""}
    host.write(
        PLUGIN_STATE, json.dumps({"version": 1, "units": [unit, {"resource": GPU}, 7], "skipped": [None], "renumbered": 7, "new": 1})
    )
    found = read_listing(host.root, DECLARATION, Where())
    assert [(one["device"], one["state"], one["why"]) for one in found["devices"]] == [("0000:01:00.0", "Healthy", "")]


def test_nothing_declared_says_so(tmp_path: Path) -> None:
    lines = table(read_listing(FakeHost(tmp_path).root, parse_declaration([]), Where()))
    assert "nothing is declared for this node" in lines

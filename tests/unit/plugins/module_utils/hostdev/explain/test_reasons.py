"""Why does my device not show up? A test for each cause, by what `hostdev devices` and `hostdev explain` say of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.holding import Holding
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.chain import Link
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.facts import Where, read_facts
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.listing import read_listing
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.node import chains
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import LISTS, PLUGIN_LOCK, PLUGIN_STATE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import Verdict
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.ledger import Ledger
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.podresources import FakePodResources

GPU, UUID = "a.com/gpu", "53764d0e-85a0-42b4-af5c-2046b460b1dc"
OK = Verdict("IOMMU_OK", ("dmar0",), "nothing to do")
Entries = list[dict[str, Any]]


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Iterator[FakeHost]:
    host = FakeHost(tmp_path)
    # as a service that runs: where one left a state file, it is believed
    with alone(host.root.at(PLUGIN_LOCK)):
        yield host


def pci(**select: Any) -> Entries:
    return [{"resource": GPU, "select": select or {"id": "10de:2684"}}]


def usb(**select: Any) -> Entries:
    return [{"resource": "a.com/key", "select": {"usb": select}}]


def row(host: FakeHost, entries: Entries, position: int = 0, **more: Any) -> tuple[str, str]:
    """Return state, and why with mend, of a device of the list."""
    one = read_listing(host.root, parse_declaration(entries, **more), Where())["devices"][position]
    return one["state"], f"{one['why']} -> {one['mend']}"


def link(host: FakeHost, entries: Entries, position: int = 0, **facts: Any) -> Link:
    """Return the first broken link of a chain, on a machine whose IOMMU is on unless facts say otherwise."""
    declaration = parse_declaration(entries)
    found = replace(read_facts(host.root, declaration), **{"verdict": OK, **facts})
    broken = chains(declaration, found)[position].first_broken
    assert broken is not None
    return broken


def both(host: FakeHost, entries: Entries, state: str, *words: str) -> None:
    """Insist that the list and the chain both say these words, and the chain that the kernel's link is the broken one."""
    told, why = row(host, entries)
    broken = link(host, entries)
    assert (told, broken.place, broken.state) == (state, "kernel", "broken")
    for word in words:
        assert word in why
        assert word in f"{broken.evidence} -> {broken.hint}"


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ({"id": "10de:2685"}, "no PCI function of this node has id 10de:2685; nearest ids present are 10de:2684 (0000:01:00.0), 10de:22ba"),
        ({"id": "1002:744c"}, "nearest ids present are"),
        ({"address": "0000:01:00.7"}, "nearest addresses present are 0000:01:00.0 (10de:2684)"),
        ({"class": "12"}, "no PCI function of this node has class 12; nearest classes present are"),
        (
            {"id": "10de:2684", "address": "0000:09:00.0"},
            "10de:2684 is there (0000:01:00.0), but not with id 10de:2684, address 0000:09:00.0",
        ),
        ({"id": "10de:2684", "serial": "x"}, "10de:2684 is there (0000:01:00.0), but not with id 10de:2684, serial x"),
        ({"numa_node": 7}, "no PCI function of this node has numa_node 7 -> compare"),
    ],
)
def test_selector_that_means_nothing_names_the_nearest(host: FakeHost, select: dict[str, Any], words: str) -> None:
    host.function("0000:00:01.0", "8086:1901", "060400", driver="pcieport")
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="16")
    both(host, pci(**select), "no-such-device", "hostdev_devices[0]: ", "compare the entry with `lspci -Dnn` on the node")
    assert words in f"{link(host, pci(**select)).evidence} -> compare"
    assert "8086:1901" not in row(host, pci(**select))[1]


@pytest.mark.parametrize("text", ["0x10de:zzzz", "10de", "10de:*", "10de:268"])
def test_selector_typed_wrongly_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(Refused, match=r"hostdev_devices\[0\]\.select\.id"):
        parse_declaration(pci(id=text))


@pytest.mark.parametrize("driver", ["nvidia", "amdgpu", "nvme"])
def test_bound_to_a_driver_of_the_host(host: FakeHost, driver: str) -> None:
    host.function("0000:01:00.0", driver=driver, group="16")
    both(host, pci(), "not-bound", f"bound to the host's driver {driver}", "run site.yml: it binds 0000:01:00.0 to vfio-pci")
    assert "unless another device plugin is to serve it" in row(host, pci())[1]


def test_bound_to_nvidia_and_able_to_make_virtual_functions(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="nvidia", group="16", files={"sriov_totalvfs": "16\n"})
    both(host, pci(), "vendor-driver-pf", "physical function on driver nvidia", "it binds 0000:01:00.0", "declare its virtual functions")


def test_bound_to_a_vfio_variant_driver_is_accepted_where_it_registered(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="mlx5_vfio_pci", group="16", files={"vfio-dev/vfio0/dev": "1:1\n"})
    host.node("16")
    assert row(host, pci())[0] == "Healthy"


def test_bound_to_a_vfio_driver_that_registered_nothing(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="qat_vfio_pci", group="16")
    both(host, pci(), "not-a-vfio-driver", "driver qat_vfio_pci registered no VFIO device", "kernel log")


def test_no_driver_bound(host: FakeHost) -> None:
    host.function("0000:01:00.0", group="16")
    both(host, pci(), "not-bound", "no driver is bound", "it binds 0000:01:00.0 to vfio-pci")


def test_iommu_off(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci")
    assert row(host, pci())[0] == "no-iommu-group"
    off = Verdict("IOMMU_OFF_BY_ARG", ("intel_iommu=off",), "remove intel_iommu=off")
    broken = link(host, pci(), verdict=off)
    assert (broken.place, "IOMMU_OFF_BY_ARG: intel_iommu=off" in broken.evidence, broken.hint) == ("kernel", True, "remove intel_iommu=off")


def test_group_shared_with_a_sibling_on_a_driver_of_the_host(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="snd_hda_intel", group="16")
    host.node("16")
    both(host, pci(), "Unhealthy", "IOMMU group 16 is not viable", "0000:01:00.1 snd_hda_intel", "companions move with")


def test_several_devices_in_one_group_are_one_unit(host: FakeHost) -> None:
    for number in range(3):
        host.function(f"0000:01:00.{number}", driver="vfio-pci", group="16")
    host.node("16")
    declaration = parse_declaration(pci())
    (one,) = read_listing(host.root, declaration, Where())["devices"]
    assert one["why"] == "3 devices share group 16: one unit, with 0000:01:00.1 0000:01:00.2"
    (chain,) = chains(declaration, replace(read_facts(host.root, declaration), verdict=OK))
    assert "3 declared devices share the group and are one unit, with 0000:01:00.1 0000:01:00.2" in chain.links[0].evidence


def test_group_that_serves_another_resource(host: FakeHost) -> None:
    for number in range(2):
        host.function(f"0000:01:00.{number}", driver="vfio-pci", group="16")
    host.node("16")
    entries = [{"resource": f"a.com/{number}", "select": {"address": f"0000:01:00.{number}"}} for number in range(2)]
    state, why = row(host, entries, 1)
    assert (state, "its IOMMU group 16 already serves a.com/0 (hostdev_devices[0])" in why) == ("shares-group", True)
    assert "already serves a.com/0" in link(host, entries, 1).evidence


@pytest.fixture(name="kubelet")
def _kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakePodResources]:
    kubelet = FakePodResources(tmp_path_factory.mktemp("k"))
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.mark.parametrize(("ids", "now"), [([], "no"), (["1", "2"], "yes, 2 allocatable")])
def test_external_provider_says_whether_it_serves(kubelet: FakePodResources, ids: list[str], now: str) -> None:
    host = FakeHost(kubelet.base)
    kubelet.allocatable.append((GPU, ids))
    entry = {"pciVendorSelector": "10de:2684", "resourceName": GPU, "externalResourceProvider": True}
    declaration = parse_declaration([], {"pciHostDevices": [entry]})
    (one,) = read_listing(host.root, declaration, Where())["devices"]
    assert (one["state"], one["why"]) == ("external", f"served by another device plugin; advertised now: {now}")
    (chain,) = chains(declaration, read_facts(host.root, declaration))
    assert (chain.links[0].state, f"advertised now: {now}" in chain.links[0].evidence) == ("ok" if ids else "absent", True)


def test_external_provider_of_a_kubelet_that_cannot_be_asked_is_not_denied(host: FakeHost) -> None:
    entry = {"pciVendorSelector": "10de:2684", "resourceName": GPU, "externalResourceProvider": True}
    state, why = row(host, [], permitted={"pciHostDevices": [entry]})
    assert (state, "advertised now: unknown" in why) == ("external", True)


def test_two_entries_with_one_selector_are_refused() -> None:
    with pytest.raises(Refused, match=r"hostdev_devices\[0\] \(a.com/gpu\) and hostdev_devices\[1\] \(b.com/gpu\)"):
        parse_declaration([*pci(), {"resource": "b.com/gpu", "select": {"id": "10de:2684"}}])


def plugin(*units: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(LISTS, ()), "resources": [{"resource": GPU, "registered": True}], "units": list(units), **more}


def unit(**more: Any) -> dict[str, Any]:
    known = {"kind": "pci", "resource": GPU, "id": "16", "name": "0000:01:00.0", "values": ["0000:01:00.0"]}
    return {**known, "health": "Healthy", "reason": "", "code": "", "since": "", **more}


def test_newly_bound_is_picked_up_within_seconds(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.node("16")
    broken = link(host, pci(), plugin=plugin(), ledger=Ledger())
    assert (broken.place, broken.evidence) == ("Kubernetes", "the plugin does not know unit 16 yet")
    assert "it takes up what is bound within seconds" in broken.hint


def test_node_lost_tells_since_when(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    lost = unit(health="Unhealthy", reason="/dev/vfio/16 does not exist", code="no-device-node", since="2026-11-30T14:03:10Z")
    broken = link(host, pci(), plugin=plugin(lost))
    assert (broken.place, broken.evidence) == ("kernel", "/dev/vfio/16 does not exist since 2026-11-30T14:03:10Z")
    assert "dmesg | grep vfio" in broken.hint


def test_node_missing_at_start_is_that_devices_alone(host: FakeHost) -> None:
    for bus in ("01", "02"):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=bus)
    host.node("02")
    state, why = row(host, pci())
    assert (state, "/dev/vfio/01 does not exist" in why) == ("Unhealthy", True)
    assert row(host, pci(), 1)[0] == "Healthy"


def mdev(host: FakeHost, type_name: str) -> Entries:
    host.function("0000:65:00.0", "10de:1eb8", "030200", driver="nvidia", group="1")
    return [{"resource": "a.com/vgpu", "select": {"mdev_type": type_name}}]


@pytest.mark.parametrize("wanted", ["nvidia-222", "GRID T4-1Q", "GRID_T4-1Q", " GRID T4-1Q "])
def test_mdev_type_is_found_by_id_and_by_name(host: FakeHost, wanted: str) -> None:
    entries = mdev(host, wanted)
    host.mdev(UUID, group="30")
    host.node("30")
    assert row(host, entries)[0] == "Healthy"
    declaration = parse_declaration(entries)
    (chain,) = chains(declaration, read_facts(host.root, declaration))
    assert chain.links[0].evidence == "mediated device of type GRID T4-1Q, parent 0000:65:00.0, IOMMU group 30"


def test_mdev_without_group_is_named(host: FakeHost) -> None:
    entries = mdev(host, "GRID T4-1Q")
    host.mdev(UUID)
    both(host, entries, "no-iommu-group", f"the kernel gave {UUID} no IOMMU group", "kernel log")


def test_mdev_type_of_which_there_is_no_device(host: FakeHost) -> None:
    entries = mdev(host, "GRID T4-2Q")
    host.mdev(UUID, group="30")
    both(host, entries, "no-such-device", f"nearest types present are GRID T4-1Q ({UUID}", "make devices of the type")
    host.write("/sys/class/mdev_bus/0000:65:00.0/mdev_supported_types/nvidia-223/name", "GRID T4-2Q\n")
    host.write("/sys/class/mdev_bus/0000:65:00.0/mdev_supported_types/nvidia-223/available_instances", "8\n")
    both(host, entries, "no-such-device", "no device of the type exists: 0000:65:00.0 can make 8")


@pytest.mark.parametrize("key", ["vendor", "product"])
def test_usb_number_that_is_none_is_refused_with_its_position(key: str) -> None:
    with pytest.raises(Refused, match=rf"hostdev_devices\[0\]\.select\.usb\.{key}"):
        parse_declaration(usb(**{"vendor": "0529", "product": "0001", key: "dongle"}))


def test_usb_device_that_is_not_plugged_in(host: FakeHost) -> None:
    host.usb("1-1", "0529:0002", serial="S1")
    both(
        host, usb(vendor="0529", product="0001"), "no-such-device", "nearest ids present are 0529:0002 (port 1-1, serial S1)", "plug it in"
    )
    both(
        host,
        usb(vendor="0529", product="0002", port="1-2"),
        "no-such-device",
        "0529:0002 is there (port 1-1, serial S1), but not with usb vendor 0529, product 0002, port 1-2",
    )


def test_usb_bundle_that_is_not_whole(host: FakeHost) -> None:
    host.usb("1-1", "046d:c077")
    entries = [{"resource": "a.com/desk", "bundle": [{"usb": {"vendor": "046d", "product": one}} for one in ("c077", "c31c")]}]
    both(host, entries, "incomplete-bundle", "its bundle lacks usb vendor 046d, product c31c", "plug in the rest of the bundle")


def test_usb_device_that_arrived_is_named_by_port_and_node(host: FakeHost) -> None:
    host.usb("1-1", "0529:0001", device=5)
    declaration = parse_declaration(usb(vendor="0529", product="0001"))
    (chain,) = chains(declaration, read_facts(host.root, declaration))
    assert chain.links[0].evidence == "USB 0529:0001 at port 1-1, /dev/bus/usb/001/005"


def test_usb_device_that_was_unplugged_is_known_by_the_plugin_alone(host: FakeHost) -> None:
    lost = {"kind": "usb", "resource": "a.com/key", "id": "1-1", "name": "1-1", "values": ["1:5"], "health": "Unhealthy"}
    lost |= {"reason": "unplugged: no USB device is at port 1-1", "code": "gone", "since": "2026-11-30T14:03:10Z"}
    broken = link(host, usb(vendor="0529", product="0001"), plugin=plugin(lost), seen=())
    assert broken.evidence.startswith("hostdev_devices[0]: no USB device")
    host.write(PLUGIN_STATE, json.dumps(plugin(lost)))
    broken = link(host, usb(vendor="0529", product="0001"))
    assert broken.evidence == "unplugged: no USB device is at port 1-1 since 2026-11-30T14:03:10Z"
    assert "plug it in again at the same port" in broken.hint


def test_generic_node_that_is_missing(host: FakeHost) -> None:
    entries = [{"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm", "count": 10}]
    both(host, entries, "Unhealthy", "/dev/kvm cannot be used: No such file or directory", "load the kernel module that makes it")
    host.char("/dev/kvm")
    held = Ledger({"devices.kubevirt.io/kvm": frozenset({"kvm0", "kvm1"})})
    declaration = parse_declaration(entries)
    serves = plugin({**unit(), "kind": "node", "resource": "devices.kubevirt.io/kvm", "id": "kvm0"})
    serves["resources"] = [{"resource": "devices.kubevirt.io/kvm", "registered": True}]
    facts = replace(read_facts(host.root, declaration), plugin=serves, ledger=held)
    (chain,) = chains(declaration, facts)
    assert [one.evidence for one in chain.links] == [
        "character device /dev/kvm",
        "devices.kubevirt.io/kvm 2 of 10 allocatable",
        "free for a guest",
    ]


def test_generic_node_that_kubevirt_serves_is_left_to_it(host: FakeHost) -> None:
    host.char("/dev/kvm")
    entries = [{"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm"}]
    detail = "KubeVirt's virt-handler serves this resource on this node"
    left = {
        "address": "/dev/kvm",
        "resource": "devices.kubevirt.io/kvm",
        "reason": "served-by-kubevirt",
        "detail": detail,
        "hint": "drop it",
    }
    broken = link(host, entries, plugin=plugin(skipped=[left]))
    assert (broken.place, broken.evidence, broken.hint) == ("Kubernetes", detail, "drop it")
    host.write(PLUGIN_STATE, json.dumps(plugin(skipped=[left])))
    assert row(host, entries) == ("served-by-kubevirt", f"{detail} -> drop it")


def test_b30_a_unit_with_another_number_names_the_pod_to_delete(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.node("16")
    told = {"resource": GPU, "pod_uid": "uid-a", "container": "compute", "ids": ["18"], "values": ["0000:01:00.0"]}
    told |= {"detail": "unit 18 was 0000:01:00.0 when the pod got it; 0000:01:00.0 is unit 16 now", "hint": "delete the pod: why"}
    ledger = Ledger({GPU: frozenset({"16"})})
    broken = link(
        host,
        pci(),
        plugin=plugin(unit(), renumbered=[told]),
        ledger=replace(ledger, holdings=(Holding(GPU, "18", "default", "vm-a", "compute"),)),
    )
    assert (broken.place, broken.evidence) == ("Kubernetes", f"renumbered: {told['detail']}")
    assert broken.hint == "delete pod default/vm-a: why"
    declaration = parse_declaration(pci())
    facts = replace(read_facts(host.root, declaration), verdict=OK, plugin=plugin(unit(), renumbered=[told]), ledger=ledger)
    assert chains(declaration, facts)[0].arrived


def test_entry_that_means_an_earlier_ones_device_too_is_fine_while_it_has_others(host: FakeHost) -> None:
    for bus, group in (("01", "16"), ("02", "17")):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group)
        host.node(group)
    one, rest = {"resource": "a.com/one", "select": {"address": "0000:01:00.0"}}, {"resource": GPU, "select": {"id": "10de:2684"}}
    state, why = row(host, [one, rest], 2)
    assert state == "shares-group"
    assert "already serves a.com/one (hostdev_devices[0])" in why
    assert link(host, [one, rest], 2).state == "absent"
    # with nothing left it is a fault
    last = {"resource": GPU, "select": {"class": "03"}}
    assert link(host, [rest, {**last, "resource": "a.com/last"}], 2).state == "broken"

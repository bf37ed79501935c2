"""From made hosts to offers, kind by kind; a later look reads only what changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import offer_mdev, offer_node, offer_pci, offer_usb
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.inventory import read_inventory
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.proofs import disproved
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GPU = "0000:01:00.0"
UUID = "53764d0e-85a0-42b4-af5c-2046b460b1dc"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def declared(*entries: dict[str, Any]) -> Declaration:
    return parse_declaration([{"resource": f"a.com/r{number}", **entry} for number, entry in enumerate(entries)])


def gpu(host: FakeHost, address: str = GPU, group: str = "16", **more: Any) -> Path:
    host.node(group)
    host.node("vfio")
    return host.function(address, driver=more.pop("driver", "vfio-pci"), group=group, **more)


# PCI

ONE = declared({"select": {"id": "10de:2684"}})


def test_a_unit_knows_what_stands_above_it(host: FakeHost) -> None:
    gpu(host, files={"numa_node": "1\n"})
    (offer,) = offer_pci.find(host.root, ONE).offers
    assert (offer.upstream, offer.card, offer.numa_node, offer.members) == (("pci0000:00", GPU), "0000:01:00", 1, (GPU,))


def test_a_later_look_takes_over_what_holds(host: FakeHost) -> None:
    folder = gpu(host)
    first = offer_pci.find(host.root, ONE).offers
    (folder / "uevent").unlink()  # whoever read it again would see no device
    assert offer_pci.find(host.root, ONE, first).offers == first


def rebind(host: FakeHost, folder: Path) -> None:
    host.bind(folder, "nvidia")


def join(host: FakeHost, _folder: Path) -> None:
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="snd_hda_intel", group="16")


def lose_node(host: FakeHost, _folder: Path) -> None:
    (host.base / "dev/vfio/16").unlink()


def regroup(host: FakeHost, folder: Path) -> None:
    (folder / "iommu_group").unlink()
    host._join(folder, GPU, "99")


def new_cdev(host: FakeHost, folder: Path) -> None:
    (folder / "vfio-dev/vfio0").mkdir(parents=True)
    host.node("devices/vfio0")


def pull(host: FakeHost, _folder: Path) -> None:
    (host.base / f"sys/bus/pci/devices/{GPU}").unlink()


def lose_control_node(host: FakeHost, _folder: Path) -> None:
    (host.base / "dev/vfio/vfio").unlink()


@pytest.mark.parametrize("change", [rebind, join, lose_node, lose_control_node, regroup, new_cdev])
def test_a_later_look_sees_what_changed(host: FakeHost, change: Any) -> None:
    folder = gpu(host)
    first = offer_pci.find(host.root, ONE).offers
    change(host, folder)
    assert disproved(host.root, first[0]) != ""
    assert offer_pci.find(host.root, ONE, first).offers == offer_pci.find(host.root, ONE).offers != first


def test_the_node_of_all_address_spaces_comes_with_a_devices_own_node(host: FakeHost) -> None:
    new_cdev(host, gpu(host))
    assert offer_pci.find(host.root, ONE).offers[0].nodes == ("/dev/vfio/16", "/dev/vfio/devices/vfio0")
    host.char("/dev/iommu")
    assert offer_pci.find(host.root, ONE).offers[0].nodes == ("/dev/vfio/16", "/dev/vfio/devices/vfio0", "/dev/iommu")
    (host.base / "dev/vfio/devices/vfio0").unlink()
    assert offer_pci.find(host.root, ONE).offers[0].nodes == ("/dev/vfio/16",)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_looked_at_when_something_happens_is_what_the_whole_look_finds(host: FakeHost, seed: int) -> None:
    chance = random.Random(seed)
    drivers = ["vfio-pci", "nvidia", "", "mlx5_vfio_pci", "snd_hda_intel", "pci-stub"]
    for slot in range(6):
        for function in range(2):
            address, group = f"0000:{slot:02x}:00.{function}", str(chance.randrange(5))
            ids = chance.choice(["10de:2684", "10de:22ba", "8086:1533"])
            code = chance.choice(["030000", "040300", "060400"])
            folder = host.function(address, ids, code, driver=chance.choice(drivers), group=chance.choice([group, group, ""]))
            if chance.random() < 0.3:
                # as the kernel has it: the device's folder, and a link to that in the class
                name = f"vfio{slot}{function}"
                (folder / "vfio-dev" / name).mkdir(parents=True)
                host.link(f"/sys/class/vfio-dev/{name}", f"/sys/devices/pci0000:00/{address}/vfio-dev/{name}")
    functions = chance.choice(["primary", "all"])
    declaration = declared({"select": {"id": "10de:2684"}, "functions": functions}, {"select": [{"id": "10de:22ba"}, {"class": "06"}]})
    whole = read_inventory(host.root, declaration)
    now = offer_pci.find(host.root, declaration).offers
    assert {(one.resource, one.id, one.name, one.trouble, one.companions) for one in now} == {
        (one.resource, one.group, str(one.primary.address), one.trouble, tuple(str(other.address) for other in one.guest_companions))
        for one in whole.units
    }
    nodes = [node for one in now for node in one.required]
    assert len(nodes) == len(set(nodes))
    later = offer_pci.find(host.root, declaration, now).offers
    assert sorted(later, key=str) == sorted(now, key=str)


def test_a_vgpu_of_the_vendors_own_framework_is_told_by_its_profile(host: FakeHost) -> None:
    files = {"nvidia/current_vgpu_type": "592\n", "nvidia/creatable_vgpu_types": ""}
    folder = gpu(host, "0000:65:00.4", "30", id="10de:2236", driver="nvidia", files=files)
    parent = host.function("0000:65:00.0", "10de:2236", "030200", driver="nvidia", group="29", files={"sriov_totalvfs": "16\n"})
    sibling = {"nvidia/current_vgpu_type": "0\n", "nvidia/creatable_vgpu_types": "592 : NVIDIA A10-4Q\n593 : NVIDIA A10-8Q\n"}
    other = host.function("0000:65:00.5", "10de:2236", "030200", driver="nvidia", group="31", files=sibling)
    for number, one in enumerate((folder, other)):
        (one / "physfn").symlink_to(parent)
        (parent / f"virtfn{number}").symlink_to(one)
    for wanted in ("592", "NVIDIA A10-4Q", "NVIDIA_A10-4Q"):
        (offer,) = offer_pci.find(host.root, declared({"select": {"vgpu_type": wanted}})).offers
        assert (offer.name, offer.health, offer.card) == ("0000:65:00.4", "Healthy", "0000:65:00")
    assert offer_pci.find(host.root, declared({"select": {"vgpu_type": "NVIDIA A10-8Q"}})).offers == ()


@pytest.mark.parametrize(
    ("profile", "served", "reason"),
    [
        ("592", ["a.com/r1"], "has the vGPU profile 592 now"),
        ("0", [], "bound to the host's driver nvidia, without a vGPU profile"),
        ("", [], "bound to the host's driver nvidia"),
    ],
)
def test_a_vgpu_that_gets_another_profile_is_another_device(host: FakeHost, profile: str, served: list[str], reason: str) -> None:
    folder = gpu(host, id="10de:2236", driver="nvidia", files={"nvidia/current_vgpu_type": "590\n"})
    declaration = declared({"select": {"vgpu_type": "590"}}, {"select": {"vgpu_type": "592"}})
    first = offer_pci.find(host.root, declaration).offers
    assert disproved(host.root, first[0]) == ""
    (folder / "nvidia/current_vgpu_type").write_text(f"{profile}\n", encoding="utf-8")
    assert "has no line 590" in disproved(host.root, first[0])
    assert [one.resource for one in offer_pci.find(host.root, declaration, first).offers] == served
    assert offer_pci.gone(host.root, first[0]).endswith(reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rebind, "bound to the host's driver nvidia"),
        (regroup, "in IOMMU group 99 now"),
        (pull, "left the bus"),
    ],
)
def test_a_unit_that_is_gone_says_why(host: FakeHost, change: Any, reason: str) -> None:
    folder = gpu(host)
    (offer,) = offer_pci.find(host.root, ONE).offers
    change(host, folder)
    assert reason in offer_pci.gone(host.root, offer)


def test_each_resource_is_told_why_it_has_not_a_function(host: FakeHost) -> None:
    gpu(host)
    gpu(host, "0000:02:00.0", "17", driver="nvidia")
    declaration = declared({"select": {"id": "10de:2684"}}, {"select": {"address": GPU}}, {"select": {"address": "0000:02:00.0"}})
    assert [(one.resource, str(one.address), one.reason) for one in offer_pci.skipped(host.root, declaration)] == [
        ("a.com/r1", GPU, "shares-group"),
        ("a.com/r0", "0000:02:00.0", "not-bound"),
        ("a.com/r2", "0000:02:00.0", "not-bound"),
    ]


# mediated devices


def test_a_type_is_found_by_name_and_by_id(host: FakeHost) -> None:
    host.function("0000:65:00.0", driver="nvidia", group="1", files={"numa_node": "1\n"})
    host.mdev(UUID, group="100")
    host.node("100")
    for wanted in ("GRID T4-1Q", "GRID_T4-1Q", " GRID T4-1Q", "nvidia-222"):
        (offer,) = offer_mdev.find(host.root, declared({"select": {"mdev_type": wanted}})).offers
        assert (offer.id, offer.name, offer.values, offer.numa_node, offer.nodes) == ("100", UUID, (UUID,), 1, ("/dev/vfio/100",))
        assert offer.card == "0000:65:00.0"
        assert disproved(host.root, offer) == ""


def test_an_mdev_without_group_is_skipped_with_the_reason(host: FakeHost) -> None:
    host.mdev(UUID)
    found = offer_mdev.find(host.root, declared({"select": {"mdev_type": "nvidia-222"}}))
    assert found.offers == ()
    assert [(one.address, one.reason) for one in found.skipped] == [(UUID, "no-iommu-group")]


def test_an_mdev_that_an_earlier_entry_has_is_told_where_it_is_missed(host: FakeHost) -> None:
    host.mdev(UUID, group="100")
    declaration = declared({"select": {"mdev_type": "GRID T4-1Q"}}, {"select": {"mdev_type": "nvidia-222"}})
    found = offer_mdev.find(host.root, declaration)
    assert [one.resource for one in found.offers] == ["a.com/r0"]
    assert [(one.resource, one.address, one.reason, one.detail) for one in found.skipped] == [
        ("a.com/r1", UUID, "shares-group", "its device serves a.com/r0 (hostdev_devices[0])")
    ]


def test_an_mdev_that_was_removed_says_so(host: FakeHost) -> None:
    host.mdev(UUID, group="100")
    host.node("vfio")
    (offer,) = offer_mdev.find(host.root, declared({"select": {"mdev_type": "nvidia-222"}})).offers
    assert offer.present == ("/dev/vfio/vfio",)
    assert offer.reason == "/dev/vfio/100 does not exist"
    (host.base / f"sys/bus/mdev/devices/{UUID}").unlink()
    assert "was removed from its parent" in offer_mdev.gone(host.root, offer)


# USB

STICK = declared({"select": {"usb": {"vendor": "46f4", "product": "1"}}})
DESK = declared({"bundle": [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "product": "c31c"}}]})


def test_a_stick_is_known_by_port_and_serial_whatever_its_number(host: FakeHost) -> None:
    host.usb("1-4.2", device=7, serial="A/B 1")
    (first,) = offer_usb.find(host.root, STICK).offers
    assert (first.values, first.nodes, first.name) == (("1:7",), ("/dev/bus/usb/001/007",), "1-4.2")
    assert first.id.startswith("1-4.2:A_B_1_")
    host.unplug("1-4.2")
    assert "no USB device is at port 1-4.2" in offer_usb.gone(host.root, first)
    host.usb("1-4.2", device=9, serial="A/B 1")
    (again,) = offer_usb.find(host.root, STICK, [first]).offers
    assert (again.id, again.values, again.nodes) == (first.id, ("1:9",), ("/dev/bus/usb/001/009",))
    assert disproved(host.root, first) != ""


@pytest.mark.parametrize("select", [{"serial": "S2"}, {"port": "1-2"}, {"vendor": "46f4", "serial": "S2"}])
def test_of_identical_devices_one_can_be_named(host: FakeHost, select: dict[str, str]) -> None:
    for number in (1, 2, 3):
        host.usb(f"1-{number}", device=number, serial=f"S{number}")
    assert [one.name for one in offer_usb.find(host.root, declared({"select": {"usb": select}})).offers] == ["1-2"]


def desks(host: FakeHost, *ports: int) -> None:
    for port in ports:
        host.usb(f"1-{port}", "046d:c077" if port % 2 else "046d:c31c", device=port)


def test_a_bundle_keeps_its_devices_when_another_one_breaks(host: FakeHost) -> None:
    desks(host, 1, 2, 3, 4)
    first = offer_usb.find(host.root, DESK).offers
    assert [one.name for one in first] == ["1-1+1-2", "1-3+1-4"]
    assert first[0].values == ("1:1", "1:2")
    host.unplug("1-1")
    assert offer_usb.find(host.root, DESK, first).offers == (first[1],)
    assert "1-3+1-2" in [one.name for one in offer_usb.find(host.root, DESK).offers]  # what would come of it without memory


def test_a_bundle_that_lacks_a_device_says_which(host: FakeHost) -> None:
    desks(host, 1)
    found = offer_usb.find(host.root, DESK)
    assert found.offers == ()
    (skipped,) = found.skipped
    assert (skipped.address, skipped.reason) == ("1-1", "incomplete-bundle")
    assert "046d, product c31c" in skipped.detail


@pytest.mark.parametrize(
    "uevent", ["", "PRODUCT=x/y/z\nBUSNUM=1\nDEVNUM=1\nDEVNAME=a\n", "PRODUCT=46f4/1/100\nBUSNUM=1\nDEVNUM=1\nDEVNAME=../../etc\n"]
)
def test_half_written_and_hostile_texts_drop_the_device(host: FakeHost, uevent: str) -> None:
    host.usb("1-1", uevent=uevent)
    assert offer_usb.find(host.root, STICK).offers == ()


# nodes

KVM = parse_declaration([{"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm", "count": 3, "permissions": "rwm"}])


def test_a_node_is_offered_so_many_times(host: FakeHost) -> None:
    assert {one.reason for one in offer_node.find(host.root, KVM).offers} == {"/dev/kvm cannot be used: No such file or directory"}
    host.char("/dev/kvm")
    offers = offer_node.find(host.root, KVM).offers
    assert [one.id for one in offers] == ["kvm0", "kvm1", "kvm2"]
    assert {(one.health, one.nodes, one.permissions, one.values) for one in offers} == {("Healthy", ("/dev/kvm",), "rwm", ())}


def test_a_file_in_a_nodes_place_is_no_device(host: FakeHost) -> None:
    host.write("/dev/kvm", "")
    assert offer_node.find(host.root, KVM).offers[0].reason == "/dev/kvm is no character device"


def test_an_offer_without_proofs_is_never_taken_over(host: FakeHost) -> None:
    gpu(host)
    ghost = Offer("pci", "a.com/r0", "16", GPU, present=("/dev/vfio/16",), members=(GPU,))
    assert offer_pci.find(host.root, ONE, [ghost]).offers == offer_pci.find(host.root, ONE).offers


def test_a_name_that_is_no_address_stops_nothing(host: FakeHost) -> None:
    gpu(host)
    gpu(host, "0000:100:00.0", "17")
    assert [one.name for one in offer_pci.find(host.root, ONE).offers] == [GPU]
    assert offer_pci.skipped(host.root, ONE) == ()

"""Units with their nodes as a made host has them, and what is told of a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.inventory import read_inventory
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import Former, Record, write_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import container_answer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.roster import changes
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def declared(ids: str = "10de:2684", functions: str = "primary") -> Declaration:
    return parse_declaration([{"resource": "example.com/gpu", "select": {"id": ids}, "functions": functions}])


def test_a_cdev_node_is_given_only_where_the_host_has_it(host: FakeHost) -> None:
    folder = host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.node("16")
    for name in ("vfio0", "vfio1"):
        (folder / "vfio-dev" / name).mkdir(parents=True)
    host.node("devices/vfio0")
    (offer,) = find(host.root, declared()).offers
    assert (offer.nodes, offer.missing) == (("/dev/vfio/16", "/dev/vfio/devices/vfio0"), ())


def test_a_companion_in_a_group_of_its_own_brings_its_node(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="17")
    host.node("16")
    host.node("17")
    host.node("vfio")
    (offer,) = find(host.root, declared(functions="all")).offers
    answer = container_answer("example.com/gpu", ["16"], {"16": offer}, "/g")
    assert answer["envs"]["HOSTDEV_COMPANIONS_EXAMPLE_COM_GPU"] == "0000:01:00.0=0000:01:00.1"
    assert [one["container_path"] for one in answer["devices"]] == ["/dev/vfio/vfio", "/dev/vfio/16", "/dev/vfio/17"]


def test_of_a_card_whose_functions_are_both_selected_the_audio_is_the_companion(host: FakeHost) -> None:
    for address, ids in (("0000:01:00.0", "10DE:2204"), ("0000:01:00.1", "10DE:1AEF")):
        uevent = f"DRIVER=vfio-pci\nPCI_CLASS=30200\nPCI_ID={ids}\nPCI_SLOT_NAME={address}\n"
        host.function(address, driver="vfio-pci", group="16", uevent=uevent, files={"numa_node": "0\n"})
    host.node("16")
    selected = [{"id": "10de:2204"}, {"id": "10de:1aef"}]
    declaration = parse_declaration([{"resource": "nvidia.com/GA102", "select": selected, "functions": "all"}])
    (offer,) = find(host.root, declaration).offers
    assert container_answer("nvidia.com/GA102", ["16"], {"16": offer}, "/g")["envs"] == {
        "PCI_RESOURCE_NVIDIA_COM_GA102": "0000:01:00.0",
        "HOSTDEV_COMPANIONS_NVIDIA_COM_GA102": "0000:01:00.0=0000:01:00.1",
    }


def test_variant_drivers_that_made_vfio_devices_are_served(host: FakeHost) -> None:
    for address, ids, driver, group in (
        ("0000:01:00.2", "15b3:101e", "mlx5_vfio_pci", "1"),
        ("0009:01:00.0", "10de:2342", "nvgrace_gpu_vfio_pci", "2"),
    ):
        (host.function(address, ids, driver=driver, group=group) / "vfio-dev").mkdir()
        host.node(group)
    block = [
        {"pciVendorSelector": "15B3:101E", "resourceName": "a.example/vf"},
        {"pciVendorSelector": "10DE:2342", "resourceName": "a.example/gh"},
    ]
    declaration = parse_declaration(permitted={"pciHostDevices": block})
    assert [(one.id, one.health) for one in find(host.root, declaration).offers] == [("1", "Healthy"), ("2", "Healthy")]
    assert find_skipped(host.root, declaration) == ()


@pytest.mark.parametrize("select", [{"serial": "S123"}, {"driver": "nvme"}])
def test_a_device_chosen_by_what_binding_hides_is_still_offered(host: FakeHost, select: dict[str, str]) -> None:
    host.function("0000:03:00.0", "144d:a808", "010802", driver="vfio-pci", group="12")
    host.node("12")
    write_record(host.root, Record({"0000:03:00.0": Former("144d:a808", "nvme", serial="S123")}))
    (offer,) = find(host.root, parse_declaration([{"resource": "example.com/disk", "select": select}])).offers
    assert (offer.id, offer.health) == ("12", "Healthy")


def test_a_further_member_is_named_with_its_unit(host: FakeHost) -> None:
    for address in ("0000:3b:00.0", "0000:3c:00.0"):
        host.function(address, driver="vfio-pci", group="56")
    (unit,) = read_inventory(host.root, declared()).as_dict()["units"]
    assert (unit["group"], unit["address"], unit["selected"]) == ("56", "0000:3b:00.0", ["0000:3c:00.0"])


def test_each_change_is_one_line(host: FakeHost) -> None:
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.node("16")
    first = find(host.root, declared()).offers
    (host.base / "dev/vfio/16").unlink()
    second = find(host.root, declared()).offers
    unit = "example.com/gpu 16 (0000:01:00.0)"
    assert changes([], first) == [f"{unit}: Healthy"]
    assert changes(first, first) == []
    assert changes(first, second) == [f"{unit}: Unhealthy: /dev/vfio/16 does not exist"]
    assert changes(second, []) == [f"{unit}: gone"]

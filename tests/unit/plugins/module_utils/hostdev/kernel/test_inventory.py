"""Inventory of made hosts: identity by group, skipped functions with their reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.facts import MachineFacts, serial_number
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.inventory import find, read_inventory
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.pci import read_function, read_group
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import PLACE, Former, Record, write_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost


def declare(select: object, **more: object) -> Declaration:
    return parse_declaration([{"resource": "nvidia.com/GPU", "select": select, **more}])


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    made.function("0000:00:01.0", "8086:1901", "060400", driver="pcieport", group="16")
    made.function("0000:01:00.0", driver="vfio-pci", group="16", files={"numa_node": "0\n", "boot_vga": "0\n"})
    made.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="16")
    return made


def test_a_group_is_one_unit_with_its_companion(host: FakeHost) -> None:
    (unit,) = read_inventory(host.root, declare({"id": "10de:2684"})).units
    assert (unit.group, str(unit.primary.address), unit.health, unit.numa_node) == ("16", "0000:01:00.0", "Healthy", 0)
    assert [str(one.address) for one in unit.companions] == ["0000:01:00.1"]
    assert unit.guest_companions == ()


def test_functions_all_gives_the_companions_to_the_guest(host: FakeHost) -> None:
    (unit,) = read_inventory(host.root, declare({"id": "10de:2684"}, functions="all")).units
    assert [str(one.address) for one in unit.guest_companions] == ["0000:01:00.1"]
    assert unit.groups == ("16",)


def test_every_selected_member_of_a_group_is_named_and_the_lowest_is_its_value(host: FakeHost) -> None:
    (unit,) = read_inventory(host.root, declare([{"id": "10de:22ba"}, {"id": "10de:2684"}])).units
    assert str(unit.primary.address) == "0000:01:00.0"
    assert [str(one.address) for one in unit.selected] == ["0000:01:00.1"]


def test_variant_drivers_are_usable_once_they_registered_a_vfio_device(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    folder = host.function("0000:01:00.2", "15b3:101e", "020000", driver="mlx5_vfio_pci", group="1")
    other = host.function("0009:01:00.0", "10de:2342", "030200", driver="nvgrace_gpu_vfio_pci", group="2")
    declaration = declare([{"id": "15b3:101e"}, {"id": "10de:2342"}])
    assert [one.reason for one in read_inventory(host.root, declaration).skipped] == ["not-a-vfio-driver"] * 2
    for each in (folder, other):
        (each / "vfio-dev" / "vfio0").mkdir(parents=True)
    inventory = read_inventory(host.root, declaration)
    assert ([unit.group for unit in inventory.units], inventory.skipped) == (["1", "2"], ())


@pytest.mark.parametrize(
    "given", [{"slot": "4"}, {"serial": "00-01-02-03-04-05-06-07"}, {"driver": "nvidia"}, {"numa_node": 0}, {"class": "03"}]
)
def test_keys_beyond_the_id(host: FakeHost, given: dict[str, object]) -> None:
    host.write("/sys/bus/pci/slots/4/address", "0000:01:00\n")
    capability = bytes.fromhex("030001000706050403020100")
    (host.folder_of("0000:01:00.0") / "config").write_bytes(b"\0" * 0x100 + capability)
    facts = MachineFacts(host.root, lambda: {"0000:01:00.0": {"id": "10de:2684", "driver": "nvidia"}})
    found = find(host.root, declare({"id": "10de:2684", **given}), facts)
    assert [str(function.address) for _entry, function in found] == ["0000:01:00.0"]
    wrong = {key: 9 if isinstance(value, int) else "ff" for key, value in given.items()}
    assert find(host.root, declare({"id": "10de:2684", **wrong}), facts) == []


RECORDED = Former("10de:2684", "nvidia", serial="S123")


@pytest.mark.parametrize("given", [{"serial": "s123"}, {"driver": "nvidia"}])
def test_a_bound_device_is_what_the_record_says_for_every_reader(host: FakeHost, given: dict[str, object]) -> None:
    write_record(host.root, Record({"0000:01:00.0": RECORDED}))
    assert [str(one.primary.address) for one in read_inventory(host.root, declare(given)).units] == ["0000:01:00.0"]
    assert len(find(host.root, declare(given))) == 1


def test_the_record_of_another_card_says_nothing_about_this_one(host: FakeHost) -> None:
    write_record(host.root, Record({"0000:01:00.0": replace(RECORDED, id="10de:1eb8")}))
    assert find(host.root, declare({"serial": "S123"})) == []


def test_an_unreadable_record_stops_nothing_that_needs_none(host: FakeHost, caplog: pytest.LogCaptureFixture) -> None:
    host.write(PLACE, "{half")
    assert len(find(host.root, declare({"id": "10de:2684"}))) == 1
    assert not caplog.text
    assert find(host.root, declare({"serial": "S123"})) == []
    assert "not our JSON" in caplog.text


def test_a_serial_capability_may_stand_behind_others() -> None:
    config = bytearray(0x400)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x200 << 20).to_bytes(4, "little")
    config[0x200:0x20C] = (0x0003 | 1 << 16).to_bytes(4, "little") + bytes.fromhex("0403020108070605")
    assert serial_number(bytes(config)) == "05-06-07-08-01-02-03-04"
    assert serial_number(bytes(0x100)) == ""
    loop = bytearray(config)
    loop[0x200:0x204] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert serial_number(bytes(loop)) == ""


def test_absent_files_are_values(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", uevent="PCI_CLASS=30200\nPCI_ID=10DE:1EB8\n")
    function = read_function(host.root, Address.parse("0000:01:00.0"))
    assert (function.id, function.class_code, function.driver, function.iommu_group) == ("10de:1eb8", "030200", "", "")
    assert (function.numa_node, function.vfio_nodes, function.physfn) == (None, None, None)
    assert read_group(host.root, "99").members == ()


def test_no_such_function_and_no_pci_at_all(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="0000:02:00.0"):
        read_function(FakeHost(tmp_path / "host").root, Address.parse("0000:02:00.0"))
    with pytest.raises(Absent, match="list PCI functions"):
        read_inventory(Root(base=tmp_path / "nothing"), declare({"id": "10de:2684"}))

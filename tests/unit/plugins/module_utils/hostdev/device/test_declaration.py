"""The declaration's grammar, its merging and its refusals, each with a position."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused

GPU = {"resource": "nvidia.com/A10", "select": {"id": "10de:2236"}}


def test_all_keys_of_an_entry() -> None:
    select = {
        "id": "0x10DE:0x2236",
        "address": "0000:65:00.0",
        "class": "0302",
        "slot": "3",
        "serial": "AB",
        "numa_node": 1,
        "driver": "nvidia",
    }
    (entry,) = parse_declaration([{"resource": "nvidia.com/A10", "select": select, "functions": "all", "allow": ["console"]}]).entries
    (selector,) = entry.selectors
    assert selector.id == "10de:2236"
    assert selector.address == Address(0, 0x65, 0, 0)
    assert (selector.class_code, selector.slot, selector.serial, selector.numa_node, selector.driver) == ("0302", "3", "AB", 1, "nvidia")
    assert (entry.functions, entry.allow, entry.position) == ("all", frozenset({"console"}), "hostdev_devices[0]")


def test_a_list_of_maps_means_any_of_them() -> None:
    (entry,) = parse_declaration([{"resource": "a.com/x", "select": [{"id": "10de:2236"}, {"id": "10de:2237"}]}]).entries
    assert [selector.id for selector in entry.selectors] == ["10de:2236", "10de:2237"]


def test_kubevirt_block_is_taken_as_it_stands() -> None:
    block = {
        "pciHostDevices": [
            {"pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/T4"},
            {"pciVendorSelector": "8086:1520", "resourceName": "intel.com/nic", "externalResourceProvider": True},
        ],
        "mediatedDevices": [{"mdevNameSelector": "GRID T4-2Q", "resourceName": "nvidia.com/GRID", "externalResourceProvider": True}],
    }
    declaration = parse_declaration(permitted=block)
    assert declaration.resources == ("nvidia.com/T4", "intel.com/nic", "nvidia.com/GRID")
    assert [entry.resource for entry in declaration.served] == ["nvidia.com/T4"]


@pytest.mark.parametrize(
    ("devices", "position", "cause"),
    [
        ([{"select": {"id": "10de:2236"}}], "hostdev_devices[0]", "resource is missing"),
        ([{"resource": "a.com/x"}], "hostdev_devices[0]", "select is missing"),
        ([{"resource": "a.com/x", "select": {}}], "hostdev_devices[0].select", "at least one key"),
        ([{"resource": "a.com/x", "select": []}], "hostdev_devices[0].select", "at least one map"),
        ([GPU, {"resource": "a.com/x", "select": [{"id": "1:2"}]}], "hostdev_devices[1].select[0].id", "four hexadecimal digits"),
        ([{"resource": "a.com/x", "select": {"adress": "x"}}], "hostdev_devices[0].select.adress", "unknown key; known are"),
        ([{"resource": "a.com/x", "select": {"address": 60.0}}], "hostdev_devices[0].select.address", "text is needed"),
        ([{"resource": "a.com/x", "select": {"class": 192}}], "hostdev_devices[0].select.class", "text is needed"),
        ([{"resource": "a.com/x", "select": {"numa_node": -1}}], "hostdev_devices[0].select.numa_node", "NUMA"),
        ([{"resource": "a.com/x", "select": {"mdev_type": "x"}}], "hostdev_devices[0].select.mdev_type", "PCI functions only"),
        ([{**GPU, "functions": "some"}], "hostdev_devices[0].functions", "one of primary, all"),
        ([{**GPU, "allocation": "dra"}], "hostdev_devices[0].allocation", "device plugin only"),
        ([{**GPU, "allow": ["everything"]}], "hostdev_devices[0].allow", "one of console"),
        ([{**GPU, "bundle": []}], "hostdev_devices[0].bundle", "PCI functions only"),
        ([{**GPU, "resource": "gpu"}], "hostdev_devices[0].resource", "DOMAIN/NAME"),
        ("10de:2236", "hostdev_devices", "a list is needed"),
    ],
)
def test_refusals_name_position_and_cause(devices: Any, position: str, cause: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_declaration(devices)
    assert caught.value.subject.startswith(f"{position}:")
    assert cause in caught.value.cause


def test_one_selector_under_two_resources_names_both_positions() -> None:
    with pytest.raises(Refused) as caught:
        parse_declaration([GPU, {"resource": "b.com/x", "select": {"id": "10DE:2236"}}])
    assert "hostdev_devices[0] (nvidia.com/A10) and hostdev_devices[1] (b.com/x)" in str(caught.value)


def test_names_that_share_a_variable_are_refused() -> None:
    with pytest.raises(Refused, match=r"a.b/c.d and a.b/c_d"):
        parse_declaration([{"resource": "a.b/c.d", "select": {"id": "10de:0001"}}, {"resource": "a.b/c_d", "select": {"id": "10de:0002"}}])


def test_mediated_devices_of_ours_are_refused_not_forgotten() -> None:
    with pytest.raises(Refused, match=r"mediatedDevices\[0\]"):
        parse_declaration(permitted={"mediatedDevices": [{"mdevNameSelector": "GRID T4-2Q", "resourceName": "nvidia.com/GRID"}]})

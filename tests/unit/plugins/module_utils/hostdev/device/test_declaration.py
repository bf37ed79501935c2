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
        ([{"resource": "a.com/x", "select": {"numa_node": "\u00b2"}}], "hostdev_devices[0].select.numa_node", "NUMA"),
        ([{"resource": "a.com/x", "select": {"numa_node": "1" * 5000}}], "hostdev_devices[0].select.numa_node", "NUMA"),
        ([{"resource": "a.com/x", "node": "/dev/vfio/16"}], "hostdev_devices[0].node", "single devices"),
        ([{"resource": "a.com/x", "node": "/dev/bus/usb/001/002"}], "hostdev_devices[0].node", "single devices"),
        ([{"resource": "a.com/x", "select": {"mdev_type": ""}}], "hostdev_devices[0].select.mdev_type", "text is needed"),
        ([{"resource": "a.com/x", "select": {"mdev_type": "x", "id": "10de:2684"}}], "hostdev_devices[0].select.id", "unknown key"),
        ([{"resource": "a.com/x", "select": {"mdev_type": "x"}, "functions": "all"}], "hostdev_devices[0].functions", "PCI devices only"),
        ([{"resource": "a.com/x", "select": [{"usb": {"port": "1-1"}}, {"mdev_type": "x"}]}], "hostdev_devices[0].select", "usb, mdev"),
        ([{"resource": "a.com/x", "select": {"usb": {}}}], "hostdev_devices[0].select.usb", "at least one key"),
        ([{"resource": "a.com/x", "select": {"usb": {"vendor": "10000"}}}], "hostdev_devices[0].select.usb.vendor", "hexadecimal"),
        ([{"resource": "a.com/x", "select": {"usb": {"port": "../1"}}}], "hostdev_devices[0].select.usb.port", "BUS-PORT"),
        ([{"resource": "a.com/x", "select": {"usb": {"bus": "1"}}}], "hostdev_devices[0].select.usb.bus", "unknown key"),
        ([{"resource": "a.com/x", "bundle": [{"id": "10de:2684"}]}], "hostdev_devices[0].bundle[0]", "usb"),
        ([{"resource": "a.com/x", "node": "/dev/kvm", "select": {"id": "10de:2684"}}], "hostdev_devices[0]", "exclude each other"),
        ([{"resource": "a.com/x", "node": "/dev/kvm", "functions": "all"}], "hostdev_devices[0].functions", "does not go with node"),
        ([{"resource": "a.com/x", "node": "/etc/passwd"}], "hostdev_devices[0].node", "device node"),
        ([{"resource": "a.com/x", "node": "/dev/../etc/passwd"}], "hostdev_devices[0].node", "device node"),
        ([{"resource": "a.com/x", "node": "/dev/kvm", "count": 0}], "hostdev_devices[0].count", "number"),
        ([{"resource": "a.com/x", "node": "/dev/kvm", "count": True}], "hostdev_devices[0].count", "number"),
        ([{"resource": "a.com/x", "node": "/dev/kvm", "permissions": "rx"}], "hostdev_devices[0].permissions", "letters"),
        ([{**GPU, "functions": "some"}], "hostdev_devices[0].functions", "one of primary, all"),
        ([{**GPU, "allocation": "dra"}], "hostdev_devices[0].allocation", "device plugin only"),
        ([{**GPU, "allow": ["everything"]}], "hostdev_devices[0].allow", "one of console"),
        ([{"resource": "a.com/x", "bundle": []}], "hostdev_devices[0].bundle", "at least one member"),
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
    with pytest.raises(Refused, match=r"hostdev_devices\[0\] \(a.b/c.d\) and hostdev_devices\[1\] \(a.b/c_d\)"):
        parse_declaration([{"resource": "a.b/c.d", "select": {"id": "10de:0001"}}, {"resource": "a.b/c_d", "select": {"id": "10de:0002"}}])


def test_one_resource_of_two_kinds_names_both_positions() -> None:
    with pytest.raises(Refused, match=r"hostdev_devices\[0\] and hostdev_permitted_host_devices\.usb\[0\].*one is pci, the other usb"):
        parse_declaration([GPU], {"usb": [{"resourceName": GPU["resource"], "selectors": [{"vendor": "46f4", "product": "1"}]}]})


@pytest.mark.parametrize(
    "entries",
    [
        [{"resource": "a.com/x", "select": {"mdev_type": "GRID T4-2Q"}}, {"resource": "a.com/y", "select": {"mdev_type": "GRID_T4-2Q"}}],
        [
            {"resource": "a.com/x", "select": {"usb": {"vendor": "46f4"}}},
            {"resource": "a.com/y", "bundle": [{"usb": {"vendor": "0x46F4"}}]},
        ],
        [{"resource": "a.com/x", "node": "/dev/kvm"}, {"resource": "a.com/y", "node": "/dev/kvm"}],
    ],
)
def test_one_selector_of_any_kind_serves_one_resource(entries: list[Any]) -> None:
    with pytest.raises(Refused, match=r"hostdev_devices\[0\] \(a.com/x\) and hostdev_devices\[1\] \(a.com/y\)"):
        parse_declaration(entries)


def test_each_kind_is_read_into_its_own_form() -> None:
    declaration = parse_declaration(
        [
            {"resource": "a.com/vgpu", "select": [{"mdev_type": "GRID T4-2Q"}, {"mdev_type": "nvidia-222"}]},
            {"resource": "a.com/stick", "select": [{"usb": {"vendor": "46f4", "product": "0x1"}}, {"usb": {"serial": "S1"}}]},
            {"resource": "a.com/desk", "bundle": [{"usb": {"port": "1-4.2"}}, {"usb": {"port": "1-4.3"}}]},
            {"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm", "count": 1000},
            {"resource": "devices.kubevirt.io/iommufd", "node": "/dev/iommu", "count": 2},
            {"resource": "a.com/vf", "select": {"vgpu_type": 256}},
        ]
    )
    vgpu, stick, desk, kvm, iommufd, vf = declaration.entries
    assert [one.kind for one in declaration.entries] == ["mdev", "usb", "usb", "node", "iommufd", "pci"]
    assert vgpu.types == ("GRID T4-2Q", "nvidia-222")
    assert [len(bundle) for bundle in stick.bundles] == [1, 1]
    assert [[str(one) for one in bundle] for bundle in desk.bundles] == [["usb port 1-4.2", "usb port 1-4.3"]]
    assert kvm.node is not None
    assert (kvm.node.count, kvm.node.permissions) == (1000, "rw")
    assert iommufd.wanted == ("/dev/iommu",)
    assert vf.wanted == ("vgpu_type 256",)


def test_kubevirts_other_lists_are_read_too() -> None:
    declaration = parse_declaration(
        permitted={
            "mediatedDevices": [{"mdevNameSelector": "GRID T4-2Q", "resourceName": "nvidia.com/GRID"}],
            "usb": [
                {"resourceName": "a.com/desk", "selectors": [{"vendor": "046d", "product": "c077"}, {"vendor": "46d", "product": "C31C"}]}
            ],
        }
    )
    grid, desk = declaration.entries
    assert (grid.kind, grid.types) == ("mdev", ("GRID T4-2Q",))
    assert [len(bundle) for bundle in desk.bundles] == [2]
    with pytest.raises(Refused, match=r"usb\[0\]\.selectors"):
        parse_declaration(permitted={"usb": [{"resourceName": "a.com/desk", "selectors": []}]})

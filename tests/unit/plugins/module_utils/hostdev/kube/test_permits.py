"""What a declaration asks of KubeVirt's lists."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import MDEV_LIST, PCI_LIST, USB_LIST, Permit, wanted

GPU = "nvidia.com/A10"


def asked(*devices: dict[str, Any], permitted: dict[str, Any] | None = None, functions: Any = ()) -> list[tuple[str, dict[str, Any]]]:
    made = wanted([parse_declaration(devices, permitted)], functions)
    assert all(one.external for one in made.permits)
    return [(one.listed, {key: one.value[key] for key in one.value if key != "externalResourceProvider"}) for one in made.permits]


def function(resource: str, device: str, part: str = "selected") -> dict[str, str]:
    return {"resource": resource, "id": device, "part": part}


def test_a_pci_entry_is_permitted_by_its_ids_once_each() -> None:
    select = [{"id": "10DE:2236", "slot": "3"}, {"id": "10de:2236", "slot": "4"}, {"id": "10de:2237"}]
    assert asked({"resource": GPU, "select": select}) == [
        (PCI_LIST, {"pciVendorSelector": "10de:2236", "resourceName": GPU}),
        (PCI_LIST, {"pciVendorSelector": "10de:2237", "resourceName": GPU}),
    ]


def test_what_is_selected_without_an_id_is_permitted_by_the_ids_that_the_nodes_have() -> None:
    functions = [
        function(GPU, "10de:2237"),
        function(GPU, "10de:2236"),
        function(GPU, "10de:2236"),
        function(GPU, "10de:1aef", "companion"),
        function("example.com/other", "8086:1572"),
    ]
    made = asked({"resource": GPU, "select": {"class": "0302"}}, functions=functions)
    assert [value["pciVendorSelector"] for _list, value in made] == ["10de:2236", "10de:2237"]


def test_only_such_names_are_left_to_the_nodes() -> None:
    made = wanted([parse_declaration([{"resource": GPU, "select": {"id": "10de:2236"}}, {"resource": "a.com/x", "select": {"slot": "3"}}])])
    assert (made.resources, made.by_nodes) == ((GPU, "a.com/x"), frozenset({"a.com/x"}))
    assert [one.resource for one in made.permits] == [GPU]


def test_hosts_may_call_equal_devices_by_different_names() -> None:
    first, second = ([{"resource": name, "select": {"id": "10de:2236"}}] for name in (GPU, "a.com/x"))
    made = wanted([parse_declaration(first), parse_declaration(second), parse_declaration(first)])
    assert [one.resource for one in made.permits] == [GPU, "a.com/x"]


def test_found_ids_do_not_widen_an_entry_that_gives_its_own() -> None:
    made = asked({"resource": GPU, "select": {"id": "10de:2236"}}, functions=[function(GPU, "10de:2237")])
    assert [value["pciVendorSelector"] for _list, value in made] == ["10de:2236"]


def test_mediated_devices_are_permitted_by_their_type_and_usb_by_vendor_and_product() -> None:
    stick = {"usb": {"vendor": "46F4", "product": "1", "serial": "x"}}
    made = asked(
        {"resource": "nvidia.com/GRID", "select": {"mdev_type": "GRID T4-1B"}},
        {"resource": "a.com/stick", "select": stick},
        {
            "resource": "a.com/desk",
            "bundle": [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "product": "c31c"}}],
        },
    )
    mouse, keyboard = {"vendor": "046d", "product": "c077"}, {"vendor": "046d", "product": "c31c"}
    assert made == [
        (MDEV_LIST, {"mdevNameSelector": "GRID T4-1B", "resourceName": "nvidia.com/GRID"}),
        (USB_LIST, {"selectors": [{"vendor": "46f4", "product": "0001"}], "resourceName": "a.com/stick"}),
        (USB_LIST, {"selectors": [mouse, keyboard], "resourceName": "a.com/desk"}),
    ]


def test_kubevirts_block_is_permitted_whoever_serves_it() -> None:
    block = {"pciHostDevices": [{"pciVendorSelector": "10DE:2236", "resourceName": GPU}]}
    assert asked(permitted=block) == [(PCI_LIST, {"pciVendorSelector": "10de:2236", "resourceName": GPU})]


def test_nodes_are_passed_over() -> None:
    made = wanted([parse_declaration([{"resource": "a.com/tun", "node": "/dev/net/tun"}])])
    assert (made.permits, made.resources) == ((), ())


def plugged(resource: str, *ids: str) -> dict[str, Any]:
    devices = [dict(zip(("port", "vendor", "product"), ("1-1", *one.split(":")))) for one in ids]
    return {"resource": resource, "devices": devices}


def test_a_usb_device_known_by_its_port_is_permitted_by_what_is_plugged_in_there() -> None:
    declaration = parse_declaration([{"resource": "a.com/stick", "select": {"usb": {"port": "1-4"}}}])
    unknown = wanted([declaration])
    assert (unknown.permits, unknown.resources, unknown.by_nodes) == ((), ("a.com/stick",), frozenset({"a.com/stick"}))
    found = wanted([declaration], usb=[plugged("a.com/stick", "46f4:0001"), plugged("b.com/other", "1:2")])
    assert [one.keys for one in found.permits] == [("46f4:0001",)]


def test_only_bundles_of_the_entrys_kind_are_taken_from_the_nodes() -> None:
    members = [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "serial": "x"}}]
    usb = [
        plugged("a.com/desk", "046d:c077", "046d:c31c"),
        plugged("a.com/desk", "046d:c077"),
        plugged("a.com/desk", "046d:c077", "1234:c31c"),
        plugged("a.com/desk", "046d:c077", "046d:c31c"),
    ]
    made = wanted([parse_declaration([{"resource": "a.com/desk", "bundle": members}])], usb=usb)
    assert [one.keys for one in made.permits] == [("046d:c077", "046d:c31c")]


@pytest.mark.parametrize(
    ("listed", "one", "other"),
    [
        (PCI_LIST, {"pciVendorSelector": "10DE:2236"}, {"pciVendorSelector": "10de:2236"}),
        (MDEV_LIST, {"mdevNameSelector": "GRID T4-1B "}, {"mdevNameSelector": "GRID_T4-1B"}),
        (USB_LIST, {"selectors": [{"vendor": "46F4", "product": "1"}]}, {"selectors": [{"vendor": "46f4", "product": "0001"}]}),
    ],
)
def test_spellings_that_mean_the_same_are_the_same(listed: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (Permit(listed, {"resourceName": GPU, **value}) for value in (one, other))
    assert first.is_same(second)
    assert first.shares_devices(second)


@pytest.mark.parametrize("value", [{}, {"selectors": None}, {"selectors": ["?"]}, {"selectors": [{"vendor": "0xg", "product": 5}]}])
def test_entries_of_others_may_be_anything(value: dict[str, Any]) -> None:
    odd = Permit(USB_LIST, value)
    assert not odd.shares_devices(Permit(USB_LIST, {"selectors": [{"vendor": "46f4", "product": "0001"}]}))
    assert str(odd).startswith("usb ")

"""Places in the guest beyond KubeVirt's: devices of several functions, many devices, the root complex with what is there."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.elements import element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import GuestPlace, Hostdev, hostdev_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import Cell, GuestNuma, HostNuma, numbers_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.placement import Placed, place_by_numa
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.root_complex import place_on_root_complex

GUEST = GuestNuma((Cell(0, frozenset({0})),), {0: (0,)})


def pci(text: str, guest: str = "", *, multifunction: bool = False) -> Hostdev:
    return Hostdev(text, Address.parse(text), GuestPlace(Address.parse(guest), multifunction) if guest else None)


def placed(*devices: Hostdev, ports: tuple[int, ...] = (), strict: bool = True) -> Placed:
    host = HostNuma({one.source: 0 for one in devices if isinstance(one.source, Address)}, {0: (0,)})
    return place_by_numa(devices, ports, max((0, *ports)), GUEST, host, strict=strict)


def test_a_device_of_several_functions_moves_as_one() -> None:
    found = placed(
        pci("0000:02:00.0", "0000:01:00.0", multifunction=True), pci("0000:02:00.1", "0000:01:00.1"), pci("0000:01:00.0"), ports=(1,)
    )
    guests = [one.guest for one in found.devices]
    assert [str(one.address) for one in guests if one] == ["0000:04:00.0", "0000:04:00.1", "0000:03:00.0"]
    assert [one.multifunction for one in guests if one] == [True, False, False]
    assert [one.model for one in found.controllers] == ["pcie-expander-bus", "pcie-root-port", "pcie-root-port"]


def test_a_bus_has_slots_for_32_root_ports() -> None:
    """KubeVirt goes on counting slots, and libvirt refuses the domain."""
    found = placed(*(pci(f"0000:{bus:02x}:00.0") for bus in range(1, 34)))
    buses = [one for one in found.controllers if one.model == "pcie-expander-bus"]
    assert [(one.index, one.bus_number, one.node) for one in buses] == [(1, 223, 0), (34, 221, 0)]
    assert max(one.place.address.slot for one in found.controllers if one.place) == 31


def test_what_keeps_a_device_from_its_node_is_told_and_refused_where_strict() -> None:
    device = pci("0000:02:00.0", "0000:20:00.0")
    assert placed(device, strict=False) == Placed((device,), (), ("0000:02:00.0 already has a guest PCI address",))
    with pytest.raises(Refused, match="0000:02:00.0 already has a guest PCI address"):
        placed(device)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999", "1 2", "1-2-3"])
def test_no_list_of_numbers(text: str) -> None:
    assert numbers_of(text) is None


def test_lists_of_numbers() -> None:
    assert numbers_of("0-2,8\n") == (0, 1, 2, 8)


def test_on_the_root_complex_no_slot_is_given_twice() -> None:
    fixed = hostdev_element(pci("0000:01:00.0", "0000:00:03.0"))
    free = [hostdev_element(pci(f"0000:02:00.{number}")) for number in range(2)]
    other = element("disk", {}, element("target", {"bus": "sata"}), element("address", {"type": "drive", "bus": 0}))
    virtio = element("disk", {}, element("target", {"bus": "virtio"}))
    ports = [element("controller", {"type": "pci", "model": model}) for model in ("pcie-root", "pcie-expander-bus", "pcie-root-port")]
    devices = element("devices", {}, virtio, fixed, *free, other, *ports, element("controller", {"type": "usb", "model": "none"}))
    place_on_root_complex(devices)
    assert devices.xpath("disk[1]/address/@slot | controller[@model='pcie-root-port']/address/@slot") == ["0x06", "0x05"]
    assert not devices.xpath("controller[not(@model='pcie-root-port')]/address")
    assert [one.findall("address")[0].get("slot") for one in (fixed, *free)] == ["0x03", "0x02", "0x04"]
    assert other.find("address[@type='drive']") is not None

"""Hostdevs of resolved entries: order, aliases, displays, bundles."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.assignment import assignments
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.described import describe
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import manifest
from lxml import etree

U, V = "53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa"
ENVIRONMENT = {
    "PCI_RESOURCE_X_IO_P": "0000:01:00.0,0000:02:00.0",
    "HOSTDEV_COMPANIONS_X_IO_P": "0000:01:00.0=0000:01:00.1",
    "MDEV_PCI_RESOURCE_X_IO_M": f"{U},{V}",
    "USB_RESOURCE_X_IO_S": "1:2,1:3",
}


def instance(host_devices: str = "", gpus: str = "", displays: Optional[dict[int, Any]] = None) -> VirtualMachineInstance:
    def entry(name: str, number: int, letter: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": f"{name}{number}", "deviceName": f"x.io/{letter}"}
        if name == "g" and number in (displays or {}):
            made["virtualGPUOptions"] = {"display": (displays or {})[number]}
        return made

    lists = (("hostDevices", "h", host_devices), ("gpus", "g", gpus))
    devices = {key: [entry(name, number, letter) for number, letter in enumerate(letters)] for key, name, letters in lists}
    vmi = parse_manifest(manifest(devices=devices))
    assert isinstance(vmi, VirtualMachineInstance)
    return vmi


def rendered(*given: Any, screen: bool = True) -> Any:
    return etree.fromstring(render(instance(*given), ENVIRONMENT, DomainSettings(screen=screen)))


ALL = ("smp", "mp")


def test_order_and_aliases_are_kubevirts() -> None:
    wanted = ["hostdevice-h2", "hostdevice-h2-f1", "hostdevice-h1", "usb-host-h0", "usb-host-h0-d1", "gpu-g1", "gpu-g0"]
    assert rendered(*ALL).xpath("devices/hostdev/alias/@name") == [f"ua-{alias}" for alias in wanted]


def test_mediated_and_usb_elements() -> None:
    mdev, usb = rendered("sm").xpath("devices/hostdev[not(@type='pci')]")[:2]
    assert dict(mdev.attrib) == {"mode": "subsystem", "type": "mdev", "model": "vfio-pci"}
    assert dict(mdev.find("source/address").attrib) == {"uuid": U}
    assert dict(usb.attrib) == {"mode": "subsystem", "type": "usb"}
    assert dict(usb.find("source/address").attrib) == {"bus": "1", "device": "2"}


def test_a_usb_controller_where_there_is_a_usb_device() -> None:
    assert rendered("s").xpath("devices/controller[@type='usb']/@model") == ["qemu-xhci"]
    assert rendered("p").xpath("devices/controller[@type='usb']/@model") == ["none"]


OFF, BOTH, SCREEN = (None, None), ("on", "on"), ("on", None)


@pytest.mark.parametrize(
    ("displays", "shown"),
    [
        ({}, [BOTH, OFF]),
        ({0: {}}, [BOTH, OFF]),
        ({1: {}}, [OFF, BOTH]),
        ({0: {"enabled": False}}, [OFF, OFF]),
        ({0: {"enabled": False, "ramFB": {"enabled": True}}}, [OFF, OFF]),
        ({0: {"enabled": True, "ramFB": {"enabled": False}}, 1: {}}, [SCREEN, BOTH]),
        ({0: {"ramFB": {}}}, [BOTH, OFF]),
    ],
)
def test_a_mediated_gpu_shows_all_that_it_is_not_told_not_to(displays: dict[int, Any], shown: list[tuple[Any, Any]]) -> None:
    """`ramFB: {}` crashes KubeVirt's launcher; here it is what its API's defaulting makes of it."""
    devices = rendered("", "mm", displays).xpath("devices/hostdev")
    assert [(one.get("display"), one.get("ramfb")) for one in devices] == shown


def test_without_a_screen_nothing_shows() -> None:
    """KubeVirt's default would have libvirt refuse a guest without its graphics device."""
    unasked: list[dict[int, Any]] = [{}, {0: {}}, {0: {"enabled": False}}]
    for displays in unasked:
        assert rendered("", "mm", displays, screen=False).xpath("devices/hostdev/@display | devices/hostdev/@ramfb") == []


@pytest.mark.parametrize("gpus", ["m", "p"])
def test_without_a_screen_a_display_that_is_asked_for_is_refused(gpus: str) -> None:
    with pytest.raises(Refused, match=r"gpus\[0\]\.virtualGPUOptions\.display\.enabled: the guest has no screen"):
        rendered("", gpus, {0: {"enabled": True}}, screen=False)


def test_one_word_about_a_display_ends_the_default_for_all() -> None:
    assert rendered("", "pm", {0: {"enabled": False}}).xpath("devices/hostdev/@display") == []


def test_host_devices_show_nothing() -> None:
    assert rendered("mm").xpath("devices/hostdev/@display") == []


def test_assignments_and_the_log_say_the_same() -> None:
    vmi = instance(*ALL)
    told = assignments(vmi, ENVIRONMENT)
    assert [(one["alias"], one["kind"], one["address"], one["companions"]) for one in told] == [
        ("ua-hostdevice-h2", "pci", "0000:01:00.0", ["0000:01:00.1"]),
        ("ua-hostdevice-h1", "mdev", U, []),
        ("ua-usb-host-h0", "usb", "1:2", ["1:3"]),
        ("ua-gpu-g1", "pci", "0000:02:00.0", []),
        ("ua-gpu-g0", "mdev", V, []),
    ]
    assert told[2]["variable"] == "USB_RESOURCE_X_IO_S"
    described = dict(describe(render(vmi, ENVIRONMENT, DomainSettings())).devices)
    assert {f"ua-{name}": address for name, address in described.items()}.items() >= {one["alias"]: one["address"] for one in told}.items()

"""The device plugin's variables as a source: kinds, bundles, counts, and what is refused with the variable's name and content."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.environment import EnvironmentSource
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import Miscounted
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sources import entries_of, resolve
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import manifest

PCI, MDEV, USB = "PCI_RESOURCE_X_IO_", "MDEV_PCI_RESOURCE_X_IO_", "USB_RESOURCE_X_IO_"
A, B = "0000:01:00.0", "0000:02:00.0"
U, V = "53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa"


def drawn(environment: dict[str, str], host_devices: str = "", gpus: str = "") -> dict[str, list[str]]:
    """Return name -> addresses; the lists name one resource x.io/LETTER per letter, entries are h0, h1, ... and g0, g1, ..."""
    lists = {"hostDevices": ("h", host_devices), "gpus": ("g", gpus)}
    devices: dict[str, Any] = {
        key: [{"name": f"{name}{number}", "deviceName": f"x.io/{letter}"} for number, letter in enumerate(letters)]
        for key, (name, letters) in lists.items()
    }
    vmi = parse_manifest(manifest(devices=devices))
    assert isinstance(vmi, VirtualMachineInstance)
    resolved = resolve(entries_of(vmi.spec), [EnvironmentSource(environment)])
    return {entry.device.name: [str(address) for address in unit.addresses] for entry, unit in resolved}


def test_each_kind_has_its_variable() -> None:
    environment = {f"{PCI}P": A, f"{MDEV}M": f"{U.upper()},{V}", f"{USB}S": "1:2"}
    assert drawn(environment, "spm", "m") == {"h0": ["1:2"], "h1": [A], "h2": [U], "g0": [V]}


def test_an_empty_variable_of_another_kind_is_none() -> None:
    assert drawn({f"{PCI}M": ",", f"{MDEV}M": U}, "m") == {"h0": [U]}


def test_usb_bundles_are_given_whole() -> None:
    environment = {f"{USB}B": "1:2,1:3,2:4,2:5", f"{USB}S": "3:1"}
    assert drawn(environment, "bsb") == {"h0": ["1:2", "1:3"], "h1": ["3:1"], "h2": ["2:4", "2:5"]}
    assert drawn(environment, "bs") == {"h0": ["1:2", "1:3", "2:4", "2:5"], "h1": ["3:1"]}


@pytest.mark.parametrize(
    ("environment", "lists", "said"),
    [
        ({f"{USB}B": "1:2,1:3,1:4"}, ("bb", ""), f"share {USB}B='1:2,1:3,1:4': 3 addresses are no whole bundles"),
        ({f"{USB}B": "1:2"}, ("bb", ""), f"2 of the manifest's devices ask for x.io/b, and {USB}B='1:2' (1 addresses)"),
        ({f"{MDEV}M": U}, ("m", "m"), f"2 of the manifest's devices ask for x.io/m, and {MDEV}M='{U}' (1 addresses)"),
        ({f"{PCI}Q": A}, ("", "p"), f"{PCI}P is not set, nor {MDEV}P nor {USB}P; set are {PCI}Q='{A}'"),
        ({"HOME": "/"}, ("p", ""), "no such variable is set at all"),
        ({f"{MDEV}M": ""}, ("m", ""), f"{MDEV}M='' (0 addresses)"),
    ],
)
def test_counted_before_anything_is_drawn(environment: dict[str, str], lists: tuple[str, str], said: str) -> None:
    with pytest.raises(Miscounted) as caught:
        drawn(environment, *lists)
    assert said in str(caught.value)
    assert caught.value.subject.startswith("spec.domain.devices.")


@pytest.mark.parametrize(
    ("environment", "lists", "said"),
    [
        ({f"{PCI}P": A, f"{MDEV}P": U}, ("p", ""), f"x.io/p: {PCI}P='{A}' and {MDEV}P='{U}' name devices of two kinds"),
        ({f"{USB}S": "1:2"}, ("", "s"), "spec.domain.devices.gpus[0] (x.io/s): a USB device is no GPU. name it under hostDevices"),
        ({f"{MDEV}M": "u-1"}, ("m", ""), f"{MDEV}M: 'u-1': not of the form"),
        ({f"{MDEV}M": f"{U},{U.upper()}"}, ("m", ""), f"{U}: it stands twice: {MDEV}M="),
        ({f"{MDEV}M": U, f"{MDEV}N": U}, ("mn", ""), f"it stands twice: {MDEV}M='{U}' and {MDEV}N='{U}'"),
        ({f"{USB}S": "1-2"}, ("s", ""), f"{USB}S: '1-2': not of the form BUS:DEVICE"),
        ({f"{USB}S": "1:2,,1:3"}, ("s", ""), f"{USB}S: '1:2,,1:3': an entry between commas is empty"),
        ({f"{USB}S": "1:2,01:002"}, ("s", ""), f"1:2: it stands twice: {USB}S="),
    ],
)
def test_refused_with_the_variable(environment: dict[str, str], lists: tuple[str, str], said: str) -> None:
    with pytest.raises(Refused) as caught:
        drawn(environment, *lists)
    assert said in str(caught.value)


def test_no_variable_is_looked_up_for_an_entry_without_a_resource() -> None:
    vmi = parse_manifest(manifest(devices={"gpus": [{"name": "g", "deviceName": "x.io/p"}]}))
    assert isinstance(vmi, VirtualMachineInstance)
    (entry,) = entries_of(vmi.spec)
    assert EnvironmentSource({"PCI_RESOURCE_": A}).serves(entry)
    bare = type(entry)(entry.path, entry.kind, type(entry.device)(name="g"))
    assert not EnvironmentSource({"PCI_RESOURCE_": A}).serves(bare)

"""Domains: what is in them, that libvirt's schema takes them, that equal input gives equal text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest import elements
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import COMPANIONS, VARIABLE, manifest, with_gpus
from lxml import etree

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
A, B = "0000:81:00.0", "0000:82:00.0"
U, V = "53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa"


@pytest.fixture(name="schema", scope="module")
def libvirt_schema() -> Any:
    return etree.RelaxNG(etree.parse(SCHEMA))


def rendered(document: dict[str, Any], environment: dict[str, str] | None = None, **settings: Any) -> Any:
    vmi = parse_manifest(document)
    assert isinstance(vmi, VirtualMachineInstance)
    return etree.fromstring(render(vmi, environment or {}, DomainSettings(**settings)))


def at(document: dict[str, Any], path: str, **settings: Any) -> list[Any]:
    return list(rendered(document, **settings).xpath(path))


KERNEL = {"container": {"image": "i", "kernelPath": "/boot/k", "initrdPath": "boot/i"}, "kernelArgs": "console=ttyS0"}
DISKS = [
    {"name": "a", "disk": {"bus": "virtio"}, "bootOrder": 1},
    {"name": "b", "cdrom": {}},
    {"name": "c", "disk": {"bus": "scsi"}, "serial": "s"},
]
VOLUMES = [
    {"name": "a", "emptyDisk": {"capacity": "1500k"}},
    {"name": "b", "containerDisk": {"image": "i"}},
    {"name": "c", "containerDisk": {"image": "i", "path": "/x.img"}},
]


def with_disks() -> dict[str, Any]:
    document = manifest(devices={"disks": DISKS})
    document["spec"]["volumes"] = VOLUMES
    return document


VALID = {
    "smallest": (manifest(), {}),
    "devices": (with_gpus("g", host_devices=("h",)), {VARIABLE: f"{A},{B}"}),
    "companions": (with_gpus("g", "h"), {VARIABLE: f"{A},{B}", COMPANIONS: f"{A}=0000:81:00.1+0000:81:00.2"}),
    "mdev": (with_gpus("g", host_devices=("h",)), {f"MDEV_{VARIABLE}": f"{U},{V}"}),
    "usb": (with_gpus(host_devices=("h",)), {VARIABLE.replace("PCI", "USB"): "1:2,1:3"}),
    "kernel": (manifest(firmware={"kernelBoot": KERNEL, "serial": "s"}), {}),
    "bios": (manifest(firmware={"bootloader": {"bios": {"useSerial": True}}}), {}),
    "efi": (manifest(firmware={"bootloader": {"efi": {}}}), {}),
    "insecure": (manifest(firmware={"bootloader": {"efi": {"secureBoot": False}}}), {}),
    "disks": (with_disks(), {}),
    "rng and socket": (manifest(devices={"rng": {}, "logSerialConsole": False}), {}),
    "no serial line": (manifest(devices={"autoattachSerialConsole": False}), {}),
    "cpu": (manifest(cpu={"cores": 2, "threads": 2, "model": "Haswell"}), {}),
    "pass-through cpu": (manifest(cpu={"model": "host-passthrough"}), {}),
}


@pytest.mark.parametrize("emulation", [False, True])
@pytest.mark.parametrize("name", VALID)
def test_schema(schema: Any, name: str, emulation: bool) -> None:
    document, environment = VALID[name]
    assert schema.validate(rendered(document, environment, emulation=emulation)), schema.error_log


def test_hostdevs_in_order_with_aliases() -> None:
    root = rendered(with_gpus("g1", "g2", host_devices=("h",)), {VARIABLE: "0000:01:00.0,10000:02:1f.7,0000:03:00.0"})
    assert root.xpath("devices/hostdev/alias/@name") == ["ua-hostdevice-h", "ua-gpu-g1", "ua-gpu-g2"]
    source = root.xpath("devices/hostdev[2]/source/address")[0]
    assert dict(source.attrib) == {"domain": "0x10000", "bus": "0x02", "slot": "0x1f", "function": "0x7"}
    assert {tuple(sorted(one.attrib.items())) for one in root.xpath("devices/hostdev")} == {
        (("managed", "no"), ("mode", "subsystem"), ("type", "pci"))
    }


def test_companions_make_one_multifunction_device() -> None:
    root = rendered(with_gpus("a", "b"), {VARIABLE: f"{A},{B}", COMPANIONS: f"{B}=0000:82:00.1+0000:82:00.2"})
    places = [(one.get("bus"), one.get("function"), one.get("multifunction")) for one in root.xpath("devices/hostdev/address")]
    assert places == [("0x01", "0x0", "on"), ("0x01", "0x1", None), ("0x01", "0x2", None)]
    assert root.xpath("devices/hostdev/alias/@name") == ["ua-gpu-a", "ua-gpu-b", "ua-gpu-b-f1", "ua-gpu-b-f2"]
    assert root.xpath("devices/controller[@model='pcie-root-port']/@index") == ["1"]
    assert root.xpath("devices/controller[@model='pcie-root']/@index") == ["0"]


def test_aliases_that_would_be_equal() -> None:
    with pytest.raises(Refused, match="alias ua-gpu-b-f1"):
        rendered(with_gpus("b", "b-f1"), {VARIABLE: f"{A},{B}", COMPANIONS: f"{A}=0000:81:00.1"})


@pytest.mark.parametrize(
    ("display", "attributes"),
    [
        ({}, (None, None)),
        ({"enabled": False, "ramFB": {"enabled": True}}, (None, None)),
        ({"enabled": True}, ("on", None)),
        ({"enabled": True, "ramFB": {}}, ("on", None)),
        ({"enabled": True, "ramFB": {"enabled": True}}, ("on", "on")),
    ],
)
def test_a_pci_device_shows_only_what_it_is_told_to(display: dict[str, Any], attributes: tuple[str | None, str | None]) -> None:
    document = with_gpus("g")
    document["spec"]["domain"]["devices"]["gpus"][0]["virtualGPUOptions"] = {"display": display}
    device = rendered(document, {VARIABLE: A}, screen=True).xpath("devices/hostdev")[0]
    assert (device.get("display"), device.get("ramfb")) == attributes


def test_kernel_boot_is_below_the_image_volume() -> None:
    root = rendered(manifest(firmware={"kernelBoot": KERNEL}), kernel_dir="/k")
    assert root.xpath("os/kernel/text() | os/initrd/text() | os/cmdline/text()") == ["/k/boot/k", "/k/boot/i", "console=ttyS0"]


def test_disks() -> None:
    root = rendered(with_disks(), disks="/d")
    assert root.xpath("devices/disk/source/@file") == ["/d/a.raw", "/d/b.qcow2", "/d/c.qcow2"]
    assert root.xpath("devices/disk/driver/@type") == ["raw", "qcow2", "qcow2"]
    assert root.xpath("devices/disk/target/@dev") == ["vda", "sda", "sdb"]
    assert root.xpath("devices/disk/@device") == ["disk", "cdrom", "disk"]
    assert len(root.xpath("devices/disk[2]/readonly")) == 1
    assert len(root.xpath("devices/controller[@type='scsi']")) == 1


@pytest.mark.parametrize(
    ("model", "emulation", "attributes"),
    [
        ("", False, {"mode": "host-model"}),
        ("host-passthrough", False, {"mode": "host-passthrough"}),
        ("Haswell", False, {"mode": "custom", "match": "exact"}),
        ("", True, {}),
        ("host-model", True, {}),
        ("host-passthrough", True, {"mode": "maximum"}),
        ("qemu64", True, {"mode": "custom", "match": "exact"}),
    ],
)
def test_cpu(model: str, emulation: bool, attributes: dict[str, str]) -> None:
    root = rendered(manifest(cpu={"model": model}), emulation=emulation)
    assert dict(root.find("cpu").attrib) == attributes
    assert root.get("type") == ("qemu" if emulation else "kvm")


def test_serial_line() -> None:
    assert at(manifest(), "devices/serial[@type='file']/source/@path", work_dir="/w") == ["/w/serial0"]
    quiet = manifest(devices={"logSerialConsole": False})
    assert at(quiet, "devices/serial[@type='unix']/source/@path", work_dir="/w") == ["/w/serial0.sock"]
    assert at(manifest(devices={"autoattachSerialConsole": False}), "devices/serial") == []


def test_what_every_domain_has() -> None:
    root = rendered(manifest())
    assert root.findtext("name") == "demo_guest"
    assert root.findtext("memory") == str(256 * 1024**2)
    assert root.xpath("os/type/@machine") == ["q35"]
    assert root.xpath("devices/memballoon/@model | devices/controller[@type='usb']/@model") == ["none", "none"]


def test_no_hole_above_4_gib() -> None:
    document = manifest()
    document["metadata"]["annotations"] = {"kubevirt.io/disablePCIHole64": "True"}
    assert at(document, "devices/controller[@model='pcie-root']/pcihole64/text()") == ["0"]


def test_equal_input_gives_equal_text() -> None:
    document, environment = VALID["companions"]
    vmi = parse_manifest(document)
    assert isinstance(vmi, VirtualMachineInstance)
    turned = dict(reversed(list(environment.items())))
    assert render(vmi, environment, DomainSettings()) == render(vmi, turned, DomainSettings())


def test_without_lxml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "etree", None)
    with pytest.raises(Fault, match="install python3-lxml"):
        rendered(manifest())

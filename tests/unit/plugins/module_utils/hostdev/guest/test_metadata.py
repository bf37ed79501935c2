"""Tags of devices, beyond what the case files say."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.addresses import MdevAddress, UsbAddress
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.metadata import (
    Affinity,
    Attached,
    attached_in,
    device_metadata,
    tags_of,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import GuestNuma, HostNuma
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

A = Address.parse("0000:81:00.0")
LIVE = """
<domain><devices>
  <hostdev mode='subsystem' type='pci' managed='no'>
    <source><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></source>
    <alias name='ua-gpu-g'/><address type='pci' domain='0x0000' bus='0x08' slot='0x00' function='0x1'/>
  </hostdev>
  <hostdev mode='subsystem' type='usb'>
    <source><address bus='1' device='2'/></source><alias name='ua-usb-host-u'/><address type='usb' bus='0' port='1'/>
  </hostdev>
  <hostdev mode='subsystem' type='mdev'><source><address uuid='u'/></source><alias name='ua-gpu-m'/></hostdev>
</devices></domain>
"""
HOST = HostNuma({A: 0}, {0: (4, 5)})


def test_tags_of_every_list() -> None:
    tags = {"interfaces": {"n": "a"}, "hostDevices": {"h": "b"}, "gpus": {"n": "c", "h": ""}}
    aliases = ["hostdevice-h", "gpu-h", "gpu-n", "sriov-n", "n", "hostdevice-n"]
    attached = [Attached(alias, "pci", f"0000:0{number}:00.0") for number, alias in enumerate(aliases)]
    found = device_metadata(tags, attached, Affinity())
    assert [(one["type"], one["address"], one["tags"]) for one in found] == [
        ("hostdev", "0000:00:00.0", ["b"]),
        ("hostdev", "0000:02:00.0", ["c"]),
        ("nic", "0000:03:00.0", ["a"]),
    ]


def test_tags_of_every_kind() -> None:
    tags = {"hostDevices": {"m": "a", "u": "b"}}
    mdev = MdevAddress("53764d0e-85a0-42b4-af5c-2046b460b1dc")
    attached = [Attached("hostdevice-m", "pci", "0000:05:00.0", mdev), Attached("usb-host-u", "usb", "0:1", UsbAddress(1, 2))]
    found = device_metadata(tags, attached, Affinity(passthrough=True, host=HOST))
    assert [(one["bus"], one["tags"], "numaNode" in one) for one in found] == [("pci", ["a"], False), ("usb", ["b"], False)]


def test_node_0_is_a_node() -> None:
    attached = [Attached("gpu-g", "pci", "0000:05:00.0", A)]
    (found,) = device_metadata({"gpus": {"g": "t"}}, attached, Affinity(passthrough=True, dedicated=True, host=HOST))
    assert found["numaNode"] == 0
    assert "alignedCPUs" not in found


def test_vcpus_that_are_near() -> None:
    attached = [Attached("gpu-g", "pci", "0000:05:00.0", A)]
    guest = GuestNuma(pins={0: (5,), 1: (9,), 2: (4,)})
    (found,) = device_metadata({"gpus": {"g": "t"}}, attached, Affinity(dedicated=True, guest=guest, host=HOST))
    assert found["alignedCPUs"] == [2, 0]
    (nothing,) = device_metadata({"gpus": {"g": "t"}}, attached, Affinity(dedicated=True, guest=guest, host=HostNuma({A: -1})))
    assert "alignedCPUs" not in nothing


def test_what_libvirt_tells_of_a_running_domain() -> None:
    assert attached_in(LIVE) == [Attached("gpu-g", "pci", "0000:08:00.1", A), Attached("usb-host-u", "usb", "0:1")]


def test_tags_of_a_manifest() -> None:
    gpus = [{"name": "g", "deviceName": "x.io/p", "tag": "t"}, {"name": "h", "deviceName": "x.io/p"}]
    spec = spec_of({"domain": {"devices": {"gpus": gpus, "interfaces": [{"name": "n", "sriov": {}, "tag": "nic"}]}}})
    assert tags_of(spec) == {"interfaces": {"n": "nic"}, "hostDevices": {}, "gpus": {"g": "t"}}
    assert device_metadata(tags_of(spec), attached_in(LIVE), Affinity()) == [
        {"type": "hostdev", "bus": "pci", "address": "0000:08:00.1", "tags": ["t"]}
    ]

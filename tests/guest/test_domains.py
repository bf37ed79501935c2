"""Domains of every kind of host device, as the real libvirt reads them: it knows what arguments QEMU would have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import HostNuma
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sriov import NetworkAddresses
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.topology import HostCpus
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import manifest
from ansible_collections.vfio.passthrough.tests.guest.guest import HERE, PYTHON

UUID = "53764d0e-85a0-42b4-af5c-2046b460b1dc"
ENVIRONMENT = {
    "PCI_RESOURCE_X_IO_P": "0000:01:00.0,0000:81:00.0",
    "HOSTDEV_COMPANIONS_X_IO_P": "0000:81:00.0=0000:81:00.1",
    "MDEV_PCI_RESOURCE_X_IO_M": UUID,
    "USB_RESOURCE_X_IO_S": "1:2,1:3",
}
PAIR = {"gpus": [{"name": name, "deviceName": "x.io/p"} for name in "ab"]}
HOST = HostCpus((0, 1, 2), HostNuma({Address.parse(one): 0 for one in ("0000:01:00.0", "0000:81:00.0")}, {0: (0, 1, 2, 3)}))
MAPPED: dict[str, Any] = {
    "cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True, "numa": {"guestMappingPassthrough": {}}},
    "memory": {"guest": "64Mi", "hugepages": {"pageSize": "2Mi"}},
}


def document(
    devices: dict[str, Any], settings: Optional[DomainSettings] = None, annotation: str = "", networks: Any = (), **domain: Any
) -> str:
    found = manifest(devices=devices, **domain)
    found["metadata"]["annotations"] = {f"kubevirt.io/{annotation}": "true"} if annotation else {}
    found["spec"]["networks"] = list(networks)
    text = render(parse_manifest(found).instance(), ENVIRONMENT, settings or DomainSettings(emulation=True))
    # on a machine without VFIO libvirt has no default for the driver of a PCI device, and asks for it
    return re.sub(r'(type="pci" managed="no".*?</source>)', r'\1<driver name="vfio"/>', text, flags=re.DOTALL)


def _network() -> str:
    settings = DomainSettings(emulation=True, networks=NetworkAddresses("f", {"n": "0000:65:0a.3"}))
    card = {"name": "n", "sriov": {}, "pciAddress": "0000:01:00.0", "bootOrder": 1}
    return document({**PAIR, "interfaces": [card]}, settings, networks=[{"name": "n", "multus": {"networkName": "n"}}])


@pytest.fixture(name="native", scope="module")
def _native() -> Iterator[dict[str, list[str]]]:
    documents = {
        "functions": document(PAIR),
        "mdev and usb": document({"hostDevices": [{"name": "m", "deviceName": "x.io/m"}, {"name": "s", "deviceName": "x.io/s"}]}),
        "mdev as gpu": document({"gpus": [{"name": "m", "deviceName": "x.io/m"}]}),
        "virtual function": _network(),
        "by numa": document(PAIR, DomainSettings(emulation=True, host=HOST, by_numa=True), **MAPPED),
        "on the root": document({**PAIR, "rng": {}}, annotation="placePCIDevicesOnRootComplex"),
        "without hole": document(PAIR, annotation="disablePCIHole64"),
    }
    # short, for the sake of libvirt's sockets
    folder = tempfile.mkdtemp(prefix="domains-")
    try:
        command = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", PYTHON, str(HERE / "to_native.py"), folder]
        shutil.chown(folder, "nobody", "nogroup")
        done = subprocess.run(command, input=json.dumps(documents), stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        yield json.loads(done.stdout)
    finally:
        shutil.rmtree(folder)


# name -> what QEMU would be told
WANTED = {
    "functions": ['"host":"0000:81:00.0".*"bus":"pci.1","multifunction":true', '"host":"0000:81:00.1".*"bus":"pci.1","addr":"0x0.0x1"'],
    "mdev and usb": [f'"sysfsdev":"/sys/bus/mdev/devices/{UUID}"', '"hostdevice":"/dev/bus/usb/001/003","id":"ua-usb-host-s-d1"'],
    "mdev as gpu": [f'"sysfsdev":"/sys/bus/mdev/devices/{UUID}"'],
    "virtual function": ['"host":"0000:65:0a.3","id":"ua-sriov-n","bootindex":1,"bus":"pci.1","addr":"0x0"'],
    "by numa": ['"driver":"pxb-pcie".*"numa_node":0', '"host":"0000:01:00.0","id":"ua-gpu-a","bus":"pci.[0-9]+"', '"hugetlb":true'],
    "on the root": ['"host":"0000:01:00.0","id":"ua-gpu-a","bus":"pcie.0","addr":"0x2"'],
    "without hole": ["q35-pcihost.pci-hole64-size"],
}


@pytest.mark.parametrize("name", WANTED)
def test_libvirt_takes_it(native: dict[str, list[str]], name: str) -> None:
    arguments, refused = native[name]
    assert not refused
    for part in WANTED[name]:
        assert re.search(part, arguments), arguments

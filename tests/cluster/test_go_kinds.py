"""Every kind of device as the kubelet's own module decodes it: registration, list and the answer for two containers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.plugin import STANDS
from ansible_collections.vfio.passthrough.tests.fakes.process import GoKubelet, PluginProcess

VFIO = ("/dev/vfio/vfio",)
# kind: the variable and the values of the two units, the nodes that come with any unit, permissions, the units' grant folders,
# the NUMA node, and whether the kubelet is to ask which units it should take
WIRE: dict[str, tuple[str, tuple[str, str], tuple[str, ...], str, tuple[str, str], str, bool]] = {
    "pci": ("PCI_RESOURCE_EXAMPLE_COM_GPU", ("0000:01:00.0", "0000:02:00.0"), VFIO, "mrw", ("GPU/16", "GPU/17"), "1", True),
    "mdev": (
        "MDEV_PCI_RESOURCE_EXAMPLE_COM_VGPU",
        ("53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa"),
        VFIO,
        "mrw",
        ("VGPU/100", "VGPU/101"),
        "1",
        True,
    ),
    "usb": ("USB_RESOURCE_EXAMPLE_COM_STICK", ("1:2", "1:3"), (), "mrw", ("STICK/1-1", "STICK/1-2"), "", True),
    "node": ("", ("", ""), (), "rw", ("KVM/all", "KVM/all"), "", False),
}


@pytest.fixture(name="base", scope="module")
def _base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vfp-") as name:
        yield Path(name)


@pytest.fixture(name="kubelet", scope="module")
def _kubelet(base: Path) -> Iterator[GoKubelet]:
    host = FakeHost(base)
    for kind in WIRE:
        STANDS[kind].make(host)
    entries = [{"resource": STANDS[kind].resource, **STANDS[kind].entry} for kind in WIRE]
    host.write("/etc/devices.json", json.dumps({"devices": entries}))
    folder = base / "plugins"
    folder.mkdir()
    with GoKubelet(folder) as kubelet, PluginProcess(host, folder):
        yield kubelet


@pytest.mark.parametrize("kind", WIRE)
def test_registration_and_list(kubelet: GoKubelet, kind: str) -> None:
    stand, (*_rest, numa, prefers) = STANDS[kind], WIRE[kind]
    told = kubelet.wait(kind, lambda event: event["event"] == "registered" and event["resource"] == stand.resource)["response"]
    endpoint = f"vfio-passthrough-{stand.resource.replace('/', '_')}.sock"
    options = {"pre_start_required": False, "get_preferred_allocation_available": prefers}
    assert told == {"version": "v1beta1", "endpoint": endpoint, "resource_name": stand.resource, "options": options}
    assert kubelet.call(stand.resource, "GetDevicePluginOptions") == {"response": options}
    devices = kubelet.listed(stand.resource, bool)["response"]["devices"]
    topology = {"nodes": [{"ID": numa}]} if numa else None
    assert devices == [{"ID": unit, "health": "Healthy", "topology": topology} for unit in stand.ids]


@pytest.mark.parametrize("kind", WIRE)
def test_answer(kubelet: GoKubelet, base: Path, kind: str) -> None:
    stand, (variable, values, control, permissions, folders, _numa, _prefers) = STANDS[kind], WIRE[kind]
    kubelet.listed(stand.resource, bool)
    prefix = stand.resource.partition("/")[0].upper().replace(".", "_")
    wanted: list[dict[str, Any]] = []
    for value, node, last in zip(values, stand.nodes, folders):
        folder = f"{base}/g/{prefix}_{last}"
        wanted.append(
            {
                "envs": {variable: value} if variable else {},
                "mounts": [{"container_path": folder, "host_path": folder, "read_only": True}],
                "devices": [{"container_path": one, "host_path": one, "permissions": permissions} for one in (*control, node)],
                "annotations": {},
                "cdi_devices": [],
            }
        )
        assert Path(folder, "grant.sock").is_socket()
    request = {"container_requests": [{"devices_ids": [unit]} for unit in stand.ids]}
    assert kubelet.call(stand.resource, "Allocate", request) == {"response": {"container_responses": wanted}}

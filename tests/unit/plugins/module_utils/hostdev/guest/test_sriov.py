"""SR-IOV interfaces: Multus's own annotation and KubeVirt's, waiting for them, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest import sriov
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.mounts import NETWORK_INFO, NETWORK_STATUS
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.networks import Binding, Interface, pod_interface

INFO, STATUS = NETWORK_INFO, NETWORK_STATUS
A, B = "0000:65:0a.3", "0000:65:0a.4"


def of_multus(**addresses: str) -> str:
    own: list[dict[str, Any]] = [{"name": "cbr0", "interface": "eth0", "ips": ["10.0.0.2"], "default": True}]
    made = [
        {
            "name": f"default/{name}",
            "interface": pod_interface(name),
            "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": address}},
        }
        for name, address in addresses.items()
    ]
    return json.dumps([*own, *made])


def of_kubevirt(**addresses: str) -> str:
    made = [{"network": name, "deviceInfo": {"type": "pci", "pci": {"pci-address": address}}} for name, address in addresses.items()]
    return json.dumps({"interfaces": made})


def read(base: Path, networks: Sequence[str], files: dict[str, str], patience: float = 0.0) -> sriov.NetworkAddresses:
    for name, text in files.items():
        (base / name).write_text(text, encoding="utf-8")
    return sriov.read_network_addresses(Root(base=base), "/", networks, patience)


def test_the_name_of_a_pods_interface_is_kubevirts() -> None:
    assert pod_interface("blue") == "pod16477688c0e"


@pytest.mark.parametrize("files", [{STATUS: of_multus(a=A, b=B)}, {INFO: of_kubevirt(a=A, b=B)}])
def test_either_file_tells(tmp_path: Path, files: dict[str, str]) -> None:
    assert read(tmp_path, ["b", "a"], files).addresses == {"a": A, "b": B}


def test_an_empty_file_leaves_it_to_the_other(tmp_path: Path) -> None:
    found = read(tmp_path, ["a"], {INFO: "", STATUS: of_multus(a=A)})
    assert (found.addresses, found.path) == ({"a": A}, f"//{STATUS}")


def test_it_waits_until_the_annotation_is_there(tmp_path: Path) -> None:
    (tmp_path / STATUS).write_text("", encoding="utf-8")
    threading.Timer(0.2, (tmp_path / STATUS).write_text, (of_multus(a=A),)).start()
    assert read(tmp_path, ["a"], {}, patience=60.0).addresses == {"a": A}


@pytest.mark.parametrize(
    ("files", "fault", "said"),
    [
        ({}, sriov.NoMapping, f"neither {INFO} nor {STATUS} is there"),
        ({STATUS: "", INFO: " \n"}, sriov.NotPopulated, f"/{INFO}: it stayed empty for 0 s"),
        ({STATUS: "{"}, sriov.NotJson, "not what Multus or KubeVirt writes"),
        ({STATUS: "{}"}, sriov.NoMapping, "no network in it has a PCI address"),
        ({STATUS: "[1]"}, sriov.NotJson, f"/{STATUS}: '[1]'"),
        ({INFO: "[]"}, sriov.NotJson, f"/{INFO}: '[]'"),
        ({INFO: '{"interfaces": [{"network": ["a"], "deviceInfo": "x"}]}'}, sriov.NotJson, "not what Multus"),
        ({STATUS: of_multus(other=A)}, sriov.NoMapping, "no network in it has a PCI address"),
    ],
)
def test_what_the_files_do_not_tell(tmp_path: Path, files: dict[str, str], fault: type[Fault], said: str) -> None:
    with pytest.raises(fault) as caught:
        read(tmp_path, ["a"], files)
    assert said in str(caught.value)


def made(addresses: dict[str, str], *interfaces: Interface) -> list[Any]:
    asked = [(f"interfaces[{index}]", one) for index, one in enumerate(interfaces)]
    return sriov.sriov_hostdevs(asked, sriov.NetworkAddresses("/etc/podinfo/f", addresses))


def test_a_function_is_a_host_device_with_the_users_place_and_order() -> None:
    (device,) = made({"n": A}, Interface(name="n", sriov=Binding(), pci_address="0000:20:00.0", boot_order=1))
    assert (device.alias, str(device.source), str(device.guest.address), device.boot_order) == ("sriov-n", A, "0000:20:00.0", 1)


@pytest.mark.parametrize(
    ("addresses", "interface", "said"),
    [
        ({"m": A}, {}, "interfaces[0] (n): /etc/podinfo/f has no PCI address for it; it has some for m"),
        ({"n": "eth0"}, {}, "cannot read a PCI address: /etc/podinfo/f, network n: 'eth0'"),
        ({"n": A}, {"pci_address": "20:00.0"}, "cannot read a guest PCI address: interfaces[0].pciAddress: '20:00.0'"),
    ],
)
def test_refused(addresses: dict[str, str], interface: dict[str, Any], said: str) -> None:
    with pytest.raises(Fault) as caught:
        made(addresses, Interface(name="n", sriov=Binding(), **interface))
    assert said in str(caught.value)
    assert isinstance(caught.value, (Refused, sriov.NetworkAbsent))

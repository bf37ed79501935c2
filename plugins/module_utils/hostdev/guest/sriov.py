"""SR-IOV interfaces: the virtual function that another plugin and Multus gave to the pod, as a host device of the guest.

Which function belongs to which network stands in an annotation of the pod that the downward API shows as a file: Multus's
own `k8s.v1.cni.cncf.io/network-status`, or `kubevirt.io/network-info` where KubeVirt's controller writes that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Tuple

from ..device.address import Address
from ..device.faults import Absent, Fault, Refused, Timeout
from ..root import Root, read_text
from ..vmi.mounts import NETWORK_INFO, NETWORK_STATUS
from ..vmi.networks import Interface, pod_interface
from .hostdev import GuestPlace, Hostdev

_Form = Callable[[Any, Sequence[str]], Iterator[Tuple[str, str]]]
_WHAT = "find the virtual functions of the guest's networks"
_BY_MULTUS = "the network's resource has to be a pool of VFs, and its CNI plugin one that writes device information"


class NotPopulated(Timeout):
    """The file stayed empty."""


class NotJson(Refused):
    """The file holds no JSON, or JSON of another shape."""


class NoMapping(Absent):
    """No network of the file has a PCI address."""


class NetworkAbsent(Absent):
    """The file has no PCI address for one of the guest's networks."""


@dataclass(frozen=True)
class NetworkAddresses:
    """Network -> PCI address as the file spells it, and the file's path for messages."""

    path: str
    addresses: Mapping[str, str]


def read_network_addresses(root: Root, folder: str, networks: Sequence[str], patience: float) -> NetworkAddresses:
    """Return the addresses of these networks from the files in a folder of the pod; waits while those that are there are empty.

    The kubelet fills a file when its annotation appears; `patience` is in seconds. Faults: the classes of this module.
    """
    deadline = time.monotonic() + patience
    while True:
        for name, form in ((NETWORK_INFO, _of_kubevirt), (NETWORK_STATUS, _of_multus)):
            path = f"{folder}/{name}"
            text = read_text(root.at(path))
            if text is not None and text.strip():
                return NetworkAddresses(path, _read(path, text, form, networks))
        there = [name for name in (NETWORK_INFO, NETWORK_STATUS) if root.at(f"{folder}/{name}").exists()]
        if not there:
            cause = f"neither {NETWORK_INFO} nor {NETWORK_STATUS} is there"
            raise NoMapping(what=_WHAT, subject=folder, cause=cause, hint="the pod mounts the annotation there")
        if time.monotonic() >= deadline:
            cause = f"it stayed empty for {patience:.0f} s"
            raise NotPopulated(what=_WHAT, subject=f"{folder}/{there[0]}", cause=cause, hint="look at Multus's messages on the pod's node")
        time.sleep(0.1)


def _read(path: str, text: str, form: _Form, networks: Sequence[str]) -> Dict[str, str]:
    try:
        found = dict(form(json.loads(text), networks))
    except (ValueError, TypeError, AttributeError) as error:
        shown = text if len(text) < 200 else f"{text[:200]}..."
        raise NotJson(what=_WHAT, subject=f"{path}: {shown!r}", cause=f"not what Multus or KubeVirt writes: {error}") from error
    if not found:
        raise NoMapping(what=_WHAT, subject=path, cause="no network in it has a PCI address", hint=_BY_MULTUS)
    return found


def _of_kubevirt(value: Any, networks: Sequence[str]) -> Iterator[Tuple[str, str]]:
    for one in value.get("interfaces") or ():
        address = _pci_address(one.get("deviceInfo"))
        if one.get("network") in networks and address:
            yield one["network"], address


def _of_multus(value: Any, networks: Sequence[str]) -> Iterator[Tuple[str, str]]:
    names = {pod_interface(network): network for network in networks}
    for one in list(value):
        address = _pci_address(one.get("device-info"))
        if one.get("interface") in names and address:
            yield names[one["interface"]], address


def _pci_address(info: Any) -> str:
    return str(((info or {}).get("pci") or {}).get("pci-address") or "")


def sriov_hostdevs(interfaces: Sequence[Tuple[str, Interface]], mapping: NetworkAddresses) -> List[Hostdev]:
    """Return a hostdev per (path, interface), in order: its source is the address of the network of its name.

    Faults: NetworkAbsent; Refused for an address that is none, the host's or the guest's, or that stands for two networks.
    """
    made: List[Hostdev] = []
    for path, interface in interfaces:
        text = mapping.addresses.get(interface.name)
        if text is None:
            cause = f"{mapping.path} has no PCI address for it; it has some for {', '.join(mapping.addresses)}"
            raise NetworkAbsent(what=_WHAT, subject=f"{path} ({interface.name})", cause=cause, hint=_BY_MULTUS)
        source = _parse(text, f"{mapping.path}, network {interface.name}", "read a PCI address")
        guest = _parse(interface.pci_address, f"{path}.pciAddress", "read a guest PCI address") if interface.pci_address else None
        made.append(Hostdev(f"sriov-{interface.name}", source, GuestPlace(guest) if guest else None, interface.boot_order))
    return made


def _parse(text: str, where: str, what: str) -> Address:
    try:
        return Address.parse(text)
    except Fault as fault:
        raise Refused(what=what, subject=f"{where}: {text!r}", cause=fault.cause, hint=fault.hint) from fault

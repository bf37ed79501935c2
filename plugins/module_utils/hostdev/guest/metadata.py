"""Tags of devices as the guest reads them: key `devices` of a config drive's openstack/latest/meta_data.json.

KubeVirt's form (pkg/cloud-init/cloud-init.go); beyond it, tags of gpus and of DRA devices arrive, those of mediated and USB
devices end no launcher, and node 0 is a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, Union

from ..device.address import Address
from ..device.faults import Absent
from ..vmi.devices import HostDevice
from ..vmi.networks import Interface
from ..vmi.spec import Spec
from .elements import from_text
from .numa import GuestNuma, HostNuma, aligned_vcpus

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# list of the manifest -> what the aliases of its devices begin with, whatever source their address has
_PREFIXES: Mapping[str, Tuple[str, ...]] = {
    "interfaces": ("sriov-",),
    "hostDevices": ("hostdevice-", "usb-host-", "dra-hostdevice-"),
    "gpus": ("gpu-", "dra-gpu-"),
}
_TYPES: Mapping[str, str] = {"interfaces": "nic"}


@dataclass(frozen=True)
class Attached:
    """A device in the guest. alias: without "ua-". bus, address: as libvirt placed it. source: on the host, None unless PCI."""

    alias: str
    bus: str
    address: str
    source: Any = None


@dataclass(frozen=True)
class Affinity:
    """What is told of a device's place. passthrough: the host's node of it; dedicated: else the vCPUs that are near it."""

    passthrough: bool = False
    dedicated: bool = False
    guest: GuestNuma = field(default_factory=GuestNuma)
    host: HostNuma = field(default_factory=HostNuma)

    def of(self, source: Any) -> Dict[str, Any]:
        """Return numaNode or alignedCPUs of a PCI device of the host; nothing for another, or where nothing is known."""
        if not isinstance(source, Address):
            return {}
        try:
            if self.passthrough:
                return {"numaNode": self.host.node(source)}
            near = aligned_vcpus(source, self.guest, self.host) if self.dedicated else ()
        except Absent:
            return {}
        return {"alignedCPUs": list(near)} if near else {}


def tags_of(spec: Spec) -> Dict[str, Dict[str, str]]:
    """Return list of the manifest -> name -> tag, for all that have one."""
    devices = spec.domain.devices
    lists: Mapping[str, Sequence[Union[HostDevice, Interface]]] = {
        "interfaces": devices.interfaces,
        "hostDevices": devices.host_devices,
        "gpus": devices.gpus,
    }
    return {key: {one.name: one.tag for one in items if one.tag} for key, items in lists.items()}


def attached_in(xml: str) -> List[Attached]:
    """Return the host devices of a domain as libvirt tells it after it has placed them; one without a place is left out."""
    made: List[Attached] = []
    for device in from_text(xml).iterfind("devices/hostdev"):
        alias, place, source = device.find("alias"), device.find("address"), device.find("source/address")
        if alias is None or place is None or source is None:
            continue
        kind = str(place.get("type", ""))
        where = str(_pci(place)) if kind == "pci" else f"{place.get('bus', '')}:{place.get('port', '')}"
        name = str(alias.get("name", "")).removeprefix("ua-")
        made.append(Attached(name, kind, where, _pci(source) if device.get("type") == "pci" else None))
    return made


def _pci(place: Element) -> Address:
    return Address(*(int(str(place.get(key, "0")), 0) for key in ("domain", "bus", "slot", "function")))


def device_metadata(tags: Mapping[str, Mapping[str, str]], attached: Sequence[Attached], affinity: Affinity) -> List[Dict[str, Any]]:
    """Return the list for the guest, in the order of the domain.

    tags: list of the manifest (interfaces, hostDevices, gpus) -> name -> tag; empty tags do not count.
    """
    wanted = {
        f"{prefix}{name}": (kind, tag) for kind, given in tags.items() for name, tag in given.items() if tag for prefix in _PREFIXES[kind]
    }
    return [_entry(device, *wanted[device.alias], affinity) for device in attached if device.alias in wanted]


def _entry(device: Attached, kind: str, tag: str, affinity: Affinity) -> Dict[str, Any]:
    return {"type": _TYPES.get(kind, "hostdev"), "bus": device.bus, "address": device.address, **affinity.of(device.source), "tags": [tag]}

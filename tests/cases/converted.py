"""Whole domains for cases that describe a guest in a few words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import HostNuma
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.topology import HostCpus
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

_HOLE = "kubevirt.io/disablePCIHole64"
# a guest that would be placed by NUMA node if anything forbade it not
_PLACED: dict[str, Any] = {
    "cores": 2,
    "dedicated": True,
    "guestMappingPassthrough": True,
    "hugepages": "2Mi",
    "memory": "4Gi",
    "gpus": ["0000:81:01.0"],
}


def domain(given: dict[str, Any], host: HostNuma) -> ET.Element:
    """Return the domain of {vmi, architecture, gate, annotation}; without vmi a guest with a device, its node and CPUs of its own."""
    guest = given.get("vmi", _PLACED if "gate" in given else {"memory": "4Gi"})
    devices = {key: guest.get(key, []) for key in ("gpus", "hostDevices")}
    environment = {f"PCI_RESOURCE_X_IO_{key.upper()}": ",".join(addresses) for key, addresses in devices.items()}
    spec = spec_of({"domain": {**_domain(guest), "devices": {key: _entries(key, len(found)) for key, found in devices.items()}}})
    # by hand: a manifest cannot ask for an architecture that nobody serves
    spec = replace(spec, architecture=given.get("architecture", ""))
    annotations = {_HOLE: given["annotation"]} if given.get("annotation") else {}
    vmi = VirtualMachineInstance(Metadata(name="case", annotations=annotations), spec)
    cpus = tuple(sorted(cpu for several in host.cpus.values() for cpu in several)) or tuple(range(guest.get("cores", 1)))
    settings = DomainSettings(host=HostCpus(cpus, host), by_numa=given.get("gate", False))
    return ET.fromstring(render(vmi, environment, settings))


def _domain(guest: dict[str, Any]) -> dict[str, Any]:
    cpu = {"cores": guest.get("cores", 1), "dedicatedCpuPlacement": guest.get("dedicated", False)}
    if guest.get("guestMappingPassthrough"):
        cpu["numa"] = {"guestMappingPassthrough": {}}
    memory = {"guest": guest["memory"], **({"hugepages": {"pageSize": guest["hugepages"]}} if "hugepages" in guest else {})}
    return {"cpu": cpu, "memory": memory}


def _entries(key: str, count: int) -> list[dict[str, str]]:
    return [{"name": f"{key}{number}", "deviceName": f"x.io/{key}"} for number in range(count)]


def controllers(root: ET.Element) -> list[dict[str, Any]]:
    """Return index, model, hole and bus of each PCI controller that a domain names."""
    made: list[dict[str, Any]] = []
    for one in root.findall("devices/controller[@type='pci']"):
        found: dict[str, Any] = {"index": one.get("index"), "model": one.get("model")}
        hole, place = one.find("pcihole64"), one.find("address")
        if hole is not None:
            found["pcihole64"] = {"unit": hole.get("unit"), "value": int(hole.text or "")}
        if place is not None:
            found["bus"] = place.get("bus")
        made.append(found)
    return made

"""Adapter of launcher-cloudinit-device-metadata.json: tags and devices in the guest to the list that a config drive holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.metadata import Affinity, Attached, device_metadata
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.numa import GuestNuma, HostNuma
from ansible_collections.vfio.passthrough.tests.cases.hostdevs import address_of
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_SOURCE = Address.parse("0000:81:00.0")


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per list of devices."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        if "keys_in_order" in want:
            yield Case(case["id"], partial(_check_order, given["devices"], want["keys_in_order"]))
        else:
            yield Case(case["id"], partial(_check, given, want["devices"]) if {"tags", "domain_hostdevs"} <= set(given) else None)


def _check(given: dict[str, Any], want: list[dict[str, Any]]) -> None:
    attached = [_attached(one) for one in given["domain_hostdevs"]]
    node = given.get("host_numa_node")
    host = HostNuma({} if node is None else {one.source: node for one in attached if one.source})
    affinity = Affinity(given.get("guestMappingPassthrough", False), given.get("dedicated", False), GuestNuma(), host)
    same(device_metadata(given["tags"], attached, affinity), want)


def _attached(given: dict[str, Any]) -> Attached:
    source: Optional[Address] = address_of(given["source"]) if given["type"] == "pci" else None
    return Attached(given["alias"], given["address"]["type"], str(address_of(given["address"])), source)


def _check_order(devices: list[dict[str, Any]], keys: list[str]) -> None:
    """Make each device of the example, of which node and vCPUs cannot both be told, and compare the order of what is told."""
    for device in devices:
        for key in ("numaNode", "alignedCPUs"):
            cpus = tuple(device["alignedCPUs"])
            host = HostNuma({_SOURCE: device["numaNode"]}, {device["numaNode"]: cpus})
            guest = GuestNuma(pins={cpu: (cpu,) for cpu in cpus})
            affinity = Affinity(passthrough=key == "numaNode", dedicated=True, guest=guest, host=host)
            attached = Attached("hostdevice-h", device["bus"], device["address"], _SOURCE)
            (made,) = device_metadata({"hostDevices": {"h": device["tags"][0]}}, [attached], affinity)
            other = {"numaNode", "alignedCPUs"} - {key}
            same(list(made), [one for one in keys if one not in other])
            same(made, {one: value for one, value in device.items() if one not in other})

"""Adapter of launcher-hostdev-device-plugin.json, PCI part: entries and variables to hostdevs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import PREFIXES
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import hostdev_element, hostdevs
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import Miscounted
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sources import EnvironmentSource, entries_of, resolve
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.devices import Devices
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.domain import Domain
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.schema import Reading, read_object
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_COUNT = {"gpus": "COUNT_MISMATCH_GPU_DP", "hostDevices": "COUNT_MISMATCH_HOSTDEV_DP"}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per list; those with variables of other kinds than PCI are not known."""
    for case in document.get("cases", ()):
        given, want = {"env": {"": ""}, **case.get("given", {})}, case.get("want", case.get("expect", {}))
        lists = given.get("lists") or {given.get("list"): given.get("entries")}
        known = all(name.startswith(PREFIXES["pci"] + "_") for name in given["env"]) and "message_contains" not in want
        yield Case(case["id"], partial(_check, lists, given["env"], want) if known else None)


def _check(lists: dict[str, Any], environment: dict[str, str], want: dict[str, Any]) -> None:
    try:
        got = _hostdevs(lists, environment)
    except Miscounted as fault:
        same({"error": next(kind for key, kind in _COUNT.items() if f".{key}[" in fault.subject)}, want)
    except Refused as fault:
        same({"error": "PCI_ADDR_PARSE" if fault.what == "read a PCI address" else str(fault)}, want)
    else:
        same({"hostdevs": [one for key in lists for one in got[key]]} if "hostdevs" in want else got, _lower(want))


def _hostdevs(lists: dict[str, Any], environment: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    reading = Reading()
    devices: Devices = read_object(Devices, lists, "spec.domain.devices", reading)
    reading.finish("read a list of devices", "")
    source = EnvironmentSource(environment)
    served = [entry for entry in entries_of(Spec(domain=Domain(devices=devices))) if source.serves(entry)]
    resolved = resolve(served, [source])
    made: dict[str, list[dict[str, Any]]] = {key: [] for key in lists}
    for (entry, dummy), device in zip(resolved, hostdevs(resolved, ())):
        made[entry.kind].append(_as_dict(hostdev_element(device)))
    return made


def _as_dict(element: Any) -> dict[str, Any]:
    source, alias = element.find("source/address"), element.find("alias")
    return {**element.attrib, "alias": alias.get("name")[len("ua-") :], "source": dict(source.attrib)}


def _lower(want: dict[str, Any]) -> dict[str, Any]:
    def one(hostdev: dict[str, Any]) -> dict[str, Any]:
        return {**hostdev, "source": {key: value.lower() for key, value in hostdev["source"].items()}}

    return {key: [one(hostdev) for hostdev in hostdevs_] for key, hostdevs_ in want.items()}

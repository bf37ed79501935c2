"""Adapter of launcher-hostdev-device-plugin.json: entries and variables to hostdevs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.building import hostdevs, in_domain_order
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.environment import EnvironmentSource
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import hostdev_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import Miscounted
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sources import entries_of, resolve
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.devices import Devices
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.domain import Domain
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.schema import Reading, read_object
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.cases.hostdevs import hostdev_dict, lower_source, with_uuids
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_REFUSED = {"read a PCI address": "PCI_ADDR_PARSE", "read a USB address": "USB_VALUE_PARSE"}
_COUNT = {"gpus": "COUNT_MISMATCH_GPU_DP", "hostDevices": "COUNT_MISMATCH_HOSTDEV_DP"}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per list, or per pair of lists."""
    for case in document.get("cases", ()):
        given, want = with_uuids(case.get("given", {})), with_uuids(case.get("want", case.get("expect", {})))
        lists = given.get("lists") or {given.get("list"): given.get("entries")}
        known = "env" in given and None not in lists and set(want) <= {"hostdevs", "error", "message_contains", "kubevirt", *lists}
        yield Case(case["id"], partial(_check, lists, given["env"], want) if known else None)


def _check(lists: dict[str, Any], environment: dict[str, str], want: dict[str, Any]) -> None:
    try:
        got = _hostdevs(lists, environment)
    except Miscounted as fault:
        same({"error": next(kind for key, kind in _COUNT.items() if f".{key}[" in fault.subject)}, _kind_of(want))
    except Refused as fault:
        same({"error": _REFUSED.get(fault.what, str(fault))}, _kind_of(want))
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
    for (entry, dummy), device in zip(in_domain_order(resolved), hostdevs(resolved, ())):
        made[entry.kind].append(hostdev_dict(hostdev_element(device)))
    return made


def _kind_of(want: dict[str, Any]) -> dict[str, Any]:
    # the fragments of a message are KubeVirt's words
    return {key: value for key, value in want.items() if key != "message_contains"}


def _lower(want: dict[str, Any]) -> dict[str, Any]:
    return {key: [lower_source(hostdev) for hostdev in hostdevs_] for key, hostdevs_ in want.items() if key != "kubevirt"}

"""Adapter of launcher-sriov-multus.json: interfaces and the file of the downward API to hostdevs.

An interface that the status does not show as ready is not asked for: that is KubeVirt's controller, which the launcher of
a pod does without.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest import sriov
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import hostdev_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.mounts import NETWORK_INFO
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.networks import Binding, Interface
from ansible_collections.vfio.passthrough.tests.cases.hostdevs import hostdev_dict, lower_source
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_FOLDER = "/podinfo"
_BY_CLASS = {
    sriov.NotPopulated: "SRIOV_INFO_EMPTY_TIMEOUT",
    sriov.NotJson: "SRIOV_INFO_JSON",
    sriov.NoMapping: "SRIOV_NO_MAPPING",
    sriov.NetworkAbsent: "SRIOV_NETWORK_NOT_FOUND",
}
_BY_WHAT = {"read a PCI address": "PCI_ADDR_PARSE", "read a guest PCI address": "GUEST_PCI_ADDR_PARSE"}
_GIVEN = {"interfaces", "status", "network_info_file"}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per list of interfaces."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = {"interfaces", "status"} <= set(given) <= _GIVEN and set(want) <= {"hostdevs", "error", "message_contains"}
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: dict[str, Any], want: dict[str, Any]) -> None:
    try:
        got = {"hostdevs": _hostdevs(given)}
    except Fault as fault:
        # the fragments of a message are KubeVirt's words
        same({"error": _BY_CLASS.get(type(fault), _BY_WHAT.get(fault.what, str(fault)))}, {"error": want.get("error")})
    else:
        same(got, {"hostdevs": [lower_source(one) for one in want["hostdevs"]]} if "hostdevs" in want else want)


def _hostdevs(given: dict[str, Any]) -> list[dict[str, Any]]:
    ready = {one["name"] for one in given["status"] if "multus-status" in one.get("infoSource", "").split(", ")}
    asked = [
        (f"interfaces[{index}]", _interface(one))
        for index, one in enumerate(given["interfaces"])
        if "sriov" in one and one["name"] in ready
    ]
    if not asked:
        return []
    with tempfile.TemporaryDirectory() as base:
        content = given.get("network_info_file")
        (Path(base) / _FOLDER[1:]).mkdir()
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (Path(base) / _FOLDER[1:] / NETWORK_INFO).write_text(text, encoding="utf-8")
        mapping = sriov.read_network_addresses(Root(base=Path(base)), _FOLDER, [one.name for dummy, one in asked], 0.0)
    return [hostdev_dict(hostdev_element(one)) for one in sriov.sriov_hostdevs(asked, mapping)]


def _interface(given: dict[str, Any]) -> Interface:
    return Interface(name=given["name"], sriov=Binding(), pci_address=given.get("pciAddress", ""), boot_order=given.get("bootOrder"))

"""Adapter of pod-resources.json: gpus and hostDevices to the resources and claims of the compute container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Optional

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.resources import asked_resources
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

SECTIONS = ("cases", "unit_test_cases")
_INPUT = {"gpus", "hostDevices", "vmi_limits", "vmi_requests"}
_WANTED = {"limits", "requests", "claims", "limits_lack", "no_mount"}
_Guest = tuple[dict[str, Any], tuple[str, ...]]
# the unit tests' guests are told by their names: what one begins with -> the list in which the rest of it is a device
_LISTS = {"GPU ": "gpus", "hostDevice ": "hostDevices"}
_OTHERS: dict[str, _Guest] = {
    "IOMMUFD gate on": ({}, ("IOMMUFD",)),
    "IOMMUFD gate off": ({}, ()),
    "TDX ": ({"launchSecurity": {"tdx": {}}}, ()),
}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest: of `cases` before memory and CPU are added, of `unit_test_cases` the whole pod."""
    for case in document.get("cases", ()):
        want = case.get("want", case.get("expected", {}))
        known = set(case.get("input", {"": ""})) <= _INPUT and (set(want) <= _WANTED or set(want) == {"refused"})
        yield Case(case["name"], partial(_check_asked, case["input"], want) if known else None)
    for case in document.get("unit_test_cases", ()):
        want = case.get("want", case.get("expected", {}))
        guest = _guest(case["name"])
        yield Case(case["name"], partial(_check_pod, *guest, want) if guest and set(want) <= _WANTED else None)


def _guest(name: str) -> Optional[_Guest]:
    """Return the domain and the gates that are on, None for a name that tells neither."""
    for begin, listed in _LISTS.items():
        if name.startswith(begin):
            return {"devices": {listed: [{"name": "d", "deviceName": name.removeprefix(begin)}]}}, ()
    return next((guest for begin, guest in _OTHERS.items() if name.startswith(begin)), None)


def _check_asked(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    resources = {"limits": given.get("vmi_limits", {}), "requests": given.get("vmi_requests", {})}
    devices = {key: given.get(key, []) for key in ("gpus", "hostDevices")}
    try:
        asked = asked_resources(spec_of({"domain": {"devices": devices, "resources": resources}}))
    except Refused as fault:
        same({"refused": want["refused"] if want.get("refused", "?") in str(fault) else str(fault)}, dict(want))
        return
    same({"limits": asked.limits, "requests": asked.requests, "claims": asked.claims}, dict(want))


def _check_pod(domain: Mapping[str, Any], on: tuple[str, ...], want: Mapping[str, Any]) -> None:
    spec = spec_of({"domain": {"memory": {"guest": "1Gi"}, **domain}})
    vmi = VirtualMachineInstance(metadata=Metadata(name="case"), spec=spec)
    container = launcher_pod(vmi, PodSettings(image="x", gates=open_gates(on)))["spec"]["containers"][0]
    for side in ("limits", "requests"):
        part = want.get(side, {})
        same({name: container["resources"][side].get(name) for name in part}, dict(part))
    same(want.get("limits_lack") in container["resources"]["limits"], False)
    mounted = [place["mountPath"] for place in container["volumeMounts"] if place["mountPath"].startswith(want.get("no_mount", "\0"))]
    same(mounted, [])

"""Adapter of launcher-pod-rendering.json: a guest to its pod's resources, claims and mounts, or the refusal of its devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.effective import effective
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.overhead import overhead
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import PodSettings, launcher_pod
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import devices, named, spec_of

SECTIONS = ("cases",)
_OWN = ("devices.kubevirt.io/kvm", "cpu", "memory", "ephemeral-storage")
_GIVEN = {"gpus", "hostDevices", "networks", "interfaces", "resourceClaims", "resources", "gates_on", "gates_off", "disableHotplug"}
_GIVEN |= {"permittedHostDevices", "requests_memory", "vcpus", "architecture"}
_REFUSAL = {"error", "message_contains"}
_ERROR = "NOT_PERMITTED"


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest; only the keys of an expectation are compared."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {"": ""}), case.get("want", case.get("expect", {"": ""}))
        known = set(given) <= _GIVEN and (set(want) <= set(_VALUES) or (set(want) <= _REFUSAL and want.get("error") == _ERROR))
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    block = given.get("permittedHostDevices")
    declared = None if block is None else parse_declaration(permitted=block).resources
    settings = PodSettings(image="x", declared=declared, gates=open_gates(given.get("gates_on", ()), given.get("gates_off", ())))
    vmi = VirtualMachineInstance(metadata=Metadata(name="case"), spec=spec_of(_document(given)))
    try:
        pod = launcher_pod(vmi, settings)
    except Refused as fault:
        missing = [text for text in want.get("message_contains", ()) if text not in fault.cause]
        same({"error": _ERROR, "missing": missing} if "error" in want else str(fault), {"error": want.get("error"), "missing": []})
        return
    same({key: _VALUES[key](vmi, pod, value) for key, value in want.items()}, dict(want))


def _document(given: Mapping[str, Any]) -> dict[str, Any]:
    lists: dict[str, Any] = {}
    for key in ("gpus", "hostDevices"):
        value = given.get(key, [])
        many = value if isinstance(value, list) else [{"name": f"d{number}", "deviceName": "x.io/y"} for number in range(value)]
        lists[key] = devices(many)
    asked = {"memory": given.get("requests_memory", "1Gi")}
    own = {
        side: {named(name): value for name, value in given.get("resources", {}).get(side, {}).items()} for side in ("limits", "requests")
    }
    return {
        "domain": {
            "devices": {**lists, "interfaces": given.get("interfaces", [])},
            "cpu": {"cores": given.get("vcpus", 1)},
            "resources": {"limits": own["limits"], "requests": {**asked, **own["requests"]}},
        },
        "networks": given.get("networks", []),
        "resourceClaims": given.get("resourceClaims"),
        "architecture": given.get("architecture"),
    }


def _side(side: str) -> Any:
    """Return the passthrough resources of a side, under the names of the case."""

    def read(_vmi: Any, pod: Mapping[str, Any], want: Mapping[str, str]) -> dict[str, str]:
        own = {named(name): name for name in want}
        return {own.get(name, name): value for name, value in _container(pod)["resources"][side].items() if name not in _OWN}

    return read


def _container(pod: Mapping[str, Any]) -> Any:
    return pod["spec"]["containers"][0]


def _mounted(_vmi: Any, pod: Mapping[str, Any], want: list[str]) -> list[str]:
    """Return the forbidden paths under which nothing is mounted: all of them is right."""
    places = [one["mountPath"] for one in _container(pod)["volumeMounts"]]
    return [path for path in want if not any(place.startswith(path) for place in places)]


def _host_paths(_vmi: Any, pod: Mapping[str, Any], want: list[str]) -> list[str]:
    places = [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume]
    return [path for path in want if not any(place.startswith(path) for place in places)]


_VALUES: dict[str, Any] = {
    "limits": _side("limits"),
    "requests": _side("requests"),
    "claims": lambda _vmi, pod, _want: _container(pod)["resources"].get("claims", []),
    "pod_resourceClaims": lambda _vmi, pod, _want: pod["spec"].get("resourceClaims"),
    "first_container": lambda _vmi, pod, _want: _container(pod)["name"],
    "containers": lambda _vmi, pod, _want: len(pod["spec"]["containers"]),
    "forbidden_mount_paths": _mounted,
    "forbidden_host_paths": _host_paths,
    "absent_limits": lambda _vmi, pod, want: [name for name in want if name not in _container(pod)["resources"]["limits"]],
    # that a pod was made at all
    "permitted": lambda _vmi, _pod, _want: True,
    "overhead_bytes": lambda vmi, _pod, _want: overhead(effective(vmi.spec)),
    "pod_memory_request_bytes": lambda _vmi, pod, _want: int(_container(pod)["resources"]["requests"]["memory"]),
    "cpu_request": lambda _vmi, pod, _want: _container(pod)["resources"]["requests"]["cpu"],
}

# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module kubevirt_permitted_devices: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.device.declaration import Declaration, parse_declaration
from ..hostdev.device.faults import Absent
from ..hostdev.kube.kubevirt import Merge, excerpt
from ..hostdev.kube.kubevirt_api import KubeVirts, converge
from ..hostdev.kube.permits import LISTS, Wanted, wanted
from ..hostdev.root import Root
from .cluster import SPEC as CLUSTER
from .cluster import api_of

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "declarations": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "devices": {"type": "list", "elements": "dict", "default": []},
            "permitted_host_devices": {"type": "dict", "default": {}},
        },
    },
    "purge": {"type": "bool", "default": True},
    "functions": {"type": "list", "elements": "dict", "default": []},
    "usb": {"type": "list", "elements": "dict", "default": []},
    "namespace": {"type": "str", "default": "kubevirt"},
    "name": {"type": "str", "default": "kubevirt"},
    **CLUSTER,
}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Bring the KubeVirt object to its wished state and return the module's result."""
    params = module.params
    objects = KubeVirts(api_of(params), params["namespace"], params["name"])
    if params["state"] == "absent":
        try:
            return _result(module, converge(objects, Wanted(), module.check_mode))
        except Absent as fault:
            return {**_NOTHING, "notes": [f"nothing to take out: {fault.cause}"]}
    wish = wanted(_declarations(params["declarations"]), params["functions"], params["usb"], params["purge"])
    return _result(module, converge(objects, wish, module.check_mode))


def _declarations(given: list[dict[str, Any]]) -> list[Declaration]:
    """Return the hosts' declarations, each read by itself: what one calls by a name another may call by another."""
    keys = ("devices", "permitted_host_devices")
    return [parse_declaration(*(one[key] for key in keys), *(f"declarations[{i}].{key}" for key in keys)) for i, one in enumerate(given)]


_NOTHING: dict[str, Any] = {"changed": False, "entries": {}, "feature_gate_added": False, "notes": [], "diff": {}}


def _result(module: Any, done: Merge) -> dict[str, Any]:
    for warning in done.warnings:
        module.warn(warning)
    entries = {listed: [dict(one.value) for one in done.memory.entries if one.listed == listed] for listed in LISTS}
    return {
        **_NOTHING,
        "changed": bool(done.patch),
        "entries": {listed: values for listed, values in entries.items() if values},
        "feature_gate_added": done.memory.gate,
        "notes": list(done.notes),
        "diff": {"before": excerpt(done.before), "after": excerpt(done.after)} if done.patch else {},
    }

# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module kubevirt_permitted_devices: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.device.declaration import parse_declaration
from ..hostdev.device.faults import Absent
from ..hostdev.kube.api import Api
from ..hostdev.kube.kubevirt import Merge, excerpt
from ..hostdev.kube.kubevirt_api import KubeVirts, converge
from ..hostdev.kube.permits import LISTS, Wanted, wanted
from ..hostdev.root import Root

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "devices": {"type": "list", "elements": "dict", "default": []},
    "permitted_host_devices": {"type": "dict", "default": {}},
    "functions": {"type": "list", "elements": "dict", "default": []},
    "namespace": {"type": "str", "default": "kubevirt"},
    "name": {"type": "str", "default": "kubevirt"},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Bring the KubeVirt object to its wished state and return the module's result."""
    params = module.params
    objects = KubeVirts(Api(params["kubeconfig"] or "", params["context"] or ""), params["namespace"], params["name"])
    if params["state"] == "absent":
        try:
            return _result(module, converge(objects, Wanted(), module.check_mode))
        except Absent as fault:
            return {**_NOTHING, "notes": [f"nothing to take out: {fault.cause}"]}
    declaration = parse_declaration(params["devices"], params["permitted_host_devices"], "devices", "permitted_host_devices")
    return _result(module, converge(objects, wanted(declaration, params["functions"]), module.check_mode))


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

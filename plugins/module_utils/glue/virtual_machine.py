# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module virtual_machine: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.kube import vm
from ..hostdev.kube.pod import PodSettings, instance_of, object_name
from ..hostdev.root import Root
from ..hostdev.vmi.manifest import parse_manifest
from .cluster import SPEC as CLUSTER
from .cluster import api_of

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "definition": {"type": "dict", "required": True},
    "namespace": {"type": "str", "default": "default"},
    "launcher_image": {"type": "str"},
    "launcher_image_pull_policy": {"type": "str", "choices": ["Always", "IfNotPresent", "Never"], "default": "IfNotPresent"},
    "launcher_emulation": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "resources": {"type": "list", "elements": "str"},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
    **CLUSTER,
}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Bring the VM to its wished state and return the module's result."""
    params = module.params
    vmi = instance_of(parse_manifest(params["definition"]))
    api = api_of(params)
    # nodes belong to no namespace, and not everybody who may create pods may list them: only where the answer decides something
    asks = params["launcher_emulation"] == "auto" and params["state"] == "present"
    settings = PodSettings(
        image=params["launcher_image"] or "",
        emulated=vm.emulated(params["launcher_emulation"], api.nodes() if asks else []),
        pull_policy=params["launcher_image_pull_policy"],
        namespace=params["namespace"],
        declared=params["resources"],
    )
    pod = api.pod(vm.namespace_of(vmi, settings), object_name(vmi))
    todo = vm.plan(params["state"], vmi, settings, pod)
    if not module.check_mode:
        vm.apply(api, todo, vmi, settings)
        if pod is not None and params["state"] == "present":
            vm.heal(api, vmi, settings, pod)
    waits = params["wait"] and not module.check_mode
    state = vm.wait(api, vmi, settings, params["state"], params["wait_timeout"]) if waits else vm.look(api, vmi, settings)
    return {
        "changed": todo.action != "none",
        "phase": state.phase,
        "node": state.node,
        "message": state.message,
        "report": dict(state.report or {}),
        "restart_required": todo.stale,
        "summary": state.summary(),
        "diff": {"before": todo.before, "after": todo.after},
    }

# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module node_daemonset: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.kube.daemonset import workload_of
from ..hostdev.kube.daemonset_api import DaemonSets, give, take, wait_given, wait_taken
from ..hostdev.root import Root
from .cluster import SPEC as CLUSTER
from .cluster import api_of

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "node": {"type": "str", "required": True},
    "definition": {"type": "dict", "required": True},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
    **CLUSTER,
}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Bring the node's share of the DaemonSet to its wished state and return the module's result."""
    params = module.params
    workload = workload_of(params["definition"])
    cluster = DaemonSets(api_of(params))
    change, wait = (give, wait_given) if params["state"] == "present" else (take, wait_taken)
    done = change(cluster, workload, params["node"], module.check_mode)
    if params["wait"] and not module.check_mode:
        wait(cluster, workload, params["node"], params["wait_timeout"])
    return {"changed": done.changed, "template": workload.digest, "diff": {"before": dict(done.before), "after": dict(done.after)}}

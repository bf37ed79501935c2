# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module node_pods_info: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.kube.api import Api
from ..hostdev.kube.vmstate import workloads
from ..hostdev.root import Root

SPEC: dict[str, Any] = {"node": {"type": "str", "required": True}, "kubeconfig": {"type": "path"}, "context": {"type": "str"}}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Return the module's result."""
    api = Api(module.params["kubeconfig"] or "", module.params["context"] or "")
    return {"changed": False, "workloads": workloads(api.pods(module.params["node"]))}

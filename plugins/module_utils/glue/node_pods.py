# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module node_pods_info: its options, and the work between them and the runtime."""

from __future__ import annotations

from typing import Any

from ..hostdev.kube.vmstate import workloads
from ..hostdev.root import Root
from .cluster import SPEC as CLUSTER
from .cluster import api_of

SPEC: dict[str, Any] = {"node": {"type": "str", "required": True}, **CLUSTER}


def work(module: Any, unused_root: Root) -> dict[str, Any]:
    """Return the module's result."""
    return {"changed": False, "workloads": workloads(api_of(module.params).pods(module.params["node"]))}

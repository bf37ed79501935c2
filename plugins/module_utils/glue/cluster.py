# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options by which modules reach the API server; plugins/doc_fragments/cluster.py documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hostdev.kube.api import Api

SPEC: dict[str, Any] = {"kubeconfig": {"type": "path"}, "context": {"type": "str"}}


def api_of(given: Mapping[str, Any]) -> Api:
    """Return the API server that a module's parameters mean; Fault when the library is missing or the kubeconfig cannot be read."""
    return Api(given["kubeconfig"] or "", given["context"] or "")

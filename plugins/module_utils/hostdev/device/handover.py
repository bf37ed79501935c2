"""Where a container is handed /dev/iommu as an open descriptor (KubeVirt's iommufd.sock, contract C9), as paths."""

from __future__ import annotations

from collections.abc import Sequence

from .grant import unit_folder

IN_CONTAINER = "/var/run/kubevirt/iommufd.sock"
"""Where KubeVirt's launcher looks for the socket; that it is there is the whole switch (its iommufd.go)."""


def handover_folder(grants: str) -> str:
    """Return the folder of all sockets on the host, beside the folder of all grants."""
    return f"{grants.rpartition('/')[0]}/iommufd"


def handover_path(resource: str, ids: Sequence[str], grants: str) -> str:
    """Return the socket of the container that has these units, at least one.

    One unit is never two containers', and it stays its container's for all starts of it: so is the path, which the kubelet
    stores. The kubelet tells the units in no order.
    """
    return f"{unit_folder(resource, min(ids), handover_folder(grants))}.sock"

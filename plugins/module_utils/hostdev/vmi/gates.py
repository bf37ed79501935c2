"""KubeVirt's feature gates that change something here, with their defaults of 1.9 (pkg/virt-config/featuregate)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from ..device.faults import Refused

HOST_DEVICES = "HostDevices"
GPUS_DRA, HOST_DEVICES_DRA, NETWORKS_DRA = "GPUsWithDRA", "HostDevicesWithDRA", "NetworkDevicesWithDRA"
NUMA_TOPOLOGY, GRACE, IOMMUFD = "PCINUMAAwareTopology", "GraceIOVirtualization", "IOMMUFD"
VGPU_MIGRATION, RESERVED_OVERHEAD = "VGPULiveMigration", "ReservedOverheadMemlock"

# name -> whether it is on where nobody names it (Beta is, Alpha is not)
GATES: Mapping[str, bool] = {
    HOST_DEVICES: False,
    GPUS_DRA: True,
    HOST_DEVICES_DRA: True,
    NETWORKS_DRA: False,
    NUMA_TOPOLOGY: False,
    GRACE: False,
    IOMMUFD: False,
    VGPU_MIGRATION: False,
    RESERVED_OVERHEAD: False,
}

DEFAULTS: frozenset[str] = frozenset(name for name, on in GATES.items() if on)


def open_gates(on: Collection[str] = (), off: Collection[str] = ()) -> frozenset[str]:
    """Return the gates that are on: those named in `on`, then no one named in `off`, then KubeVirt's defaults.

    Refused for a name that changes nothing here, with the nearest one that does.
    """
    for name in (*on, *off):
        if name not in GATES:
            near = get_close_matches(name, GATES, 1)
            raise Refused(
                what="set a feature gate",
                subject=name,
                cause="no gate of this name changes anything here",
                hint=f"the nearest is {near[0]}" if near else f"known are {', '.join(GATES)}",
            )
    return frozenset(name for name in GATES if name in on or (name not in off and name in DEFAULTS))

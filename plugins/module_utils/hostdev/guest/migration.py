"""Why a guest with devices of the host cannot move while it runs (KubeVirt pkg/virt-handler/vm.go, isHostDevicesMigratable)."""

from __future__ import annotations

from collections.abc import Collection

from ..vmi.devices import Gpu, HostDevice

REASON = "HostDeviceNotLiveMigratable"
GATE = "VGPULiveMigration"


def migration_obstacle(host_devices: Collection[HostDevice], gpus: Collection[Gpu], *, gate: bool, mdev_resources: Collection[str]) -> str:
    """Return why the guest cannot move, "" when its devices are no reason; the first that holds, in KubeVirt's words.

    gate: whether feature gate VGPULiveMigration is on. mdev_resources: resources of permitted mediated devices.
    """
    if host_devices:
        return "VMI specifies non-migratable generic PCI host device"
    if len(gpus) > 1:
        return "VMI specifies too many GPUs"
    for gpu in gpus:
        if not gate:
            return f"VMI specifies a GPU but feature gate {GATE} is not enabled"
        if gpu.device_name not in mdev_resources:
            return "VMI specifies non-migratable GPU device"
    return ""

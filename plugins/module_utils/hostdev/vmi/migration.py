"""Why a guest with devices cannot move to another node (KubeVirt pkg/virt-handler/vm.go, condition LiveMigratable)."""

from __future__ import annotations

from collections.abc import Collection

from . import gates as gate
from .spec import Spec

REASON = "HostDeviceNotLiveMigratable"


def not_migratable(spec: Spec, gates: Collection[str] = gate.DEFAULTS, mediated: Collection[str] = ()) -> str:
    """Return why not, in KubeVirt's words, empty when no device hinders; the first rule that holds decides.

    mediated: the resources of permittedHostDevices.mediatedDevices. SR-IOV interfaces hinder nothing: they are unplugged and
    plugged again.
    """
    devices = spec.domain.devices
    if devices.host_devices:
        return "VMI specifies non-migratable generic PCI host device"
    if len(devices.gpus) > 1:
        return "VMI specifies too many GPUs"
    if devices.gpus and gate.VGPU_MIGRATION not in gates:
        return f"VMI specifies a GPU but feature gate {gate.VGPU_MIGRATION} is not enabled"
    if devices.gpus and devices.gpus[0].device_name not in mediated:
        return "VMI specifies non-migratable GPU device"
    return ""

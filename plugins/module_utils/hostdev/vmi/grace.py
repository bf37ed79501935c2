"""NVIDIA Grace: which devices of a guest are GPUs whose IOMMU, memory and PCI layout the guest sees (KubeVirt 1.9, pkg/graceiov)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from .spec import Spec

VENDOR = "10de"
DEVICES = ("2342", "2348", "2941")
_ALIASES = {"gpus": "gpu", "hostDevices": "hostdevice"}

Selectors = Mapping[str, str]
"""pciVendorSelector by resource name."""


def selectors_of(permitted: Optional[Mapping[str, Any]]) -> dict[str, str]:
    """Return the PCI selectors of KubeVirt's permittedHostDevices as they stand; of two for one resource the last counts."""
    listed = (permitted or {}).get("pciHostDevices") or ()
    return {str(entry["resourceName"]): str(entry["pciVendorSelector"]) for entry in listed}


def is_grace(selector: str) -> bool:
    """Return whether a selector means one of the GPUs exactly."""
    vendor, _colon, device = selector.lower().partition(":")
    return vendor == VENDOR and device in DEVICES


def is_ambiguous(selector: str) -> bool:
    """Return whether a selector means such a GPU among others."""
    return selector.lower() == f"{VENDOR}:*"


def grace_devices(spec: Spec, selectors: Selectors) -> list[tuple[str, str]]:
    """Return path and selector of each entry whose resource may be such a GPU, gpus first; claims are never asked."""
    lists = (("gpus", spec.domain.devices.gpus), ("hostDevices", spec.domain.devices.host_devices))
    found = []
    for listed, devices in lists:
        for index, device in enumerate(devices):
            selector = selectors.get(device.device_name, "")
            if is_grace(selector) or is_ambiguous(selector):
                found.append((f"domain.devices.{listed}[{index}]", selector))
    return found


def grace_aliases(spec: Spec, selectors: Selectors) -> list[str]:
    """Return the aliases, without ua-, of the guest's Grace GPUs in order (KubeVirt pkg/virt-handler/options.go)."""
    lists = (("gpus", spec.domain.devices.gpus), ("hostDevices", spec.domain.devices.host_devices))
    return sorted(
        f"{_ALIASES[listed]}-{device.name}"
        for listed, devices in lists
        for device in devices
        if is_grace(selectors.get(device.device_name, ""))
    )

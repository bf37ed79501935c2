"""Manifests for tests: the smallest that is served, and changes to it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

RESOURCE = "nvidia.com/AD102"
VARIABLE = "PCI_RESOURCE_NVIDIA_COM_AD102"
COMPANIONS = "HOSTDEV_COMPANIONS_NVIDIA_COM_AD102"

_SMALLEST: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "guest", "namespace": "demo"},
    "spec": {"domain": {"devices": {}, "memory": {"guest": "256Mi"}}},
}


def manifest(**domain: Any) -> dict[str, Any]:
    """Return the smallest manifest with these keys of spec.domain set; `devices` merges into what is there."""
    document = deepcopy(_SMALLEST)
    document["spec"]["domain"].update(deepcopy(domain))
    return document


def with_gpus(*names: str, host_devices: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a manifest with GPUs and host devices of these names, all of RESOURCE."""
    entries = {
        key: [{"name": name, "deviceName": RESOURCE} for name in given] for key, given in (("gpus", names), ("hostDevices", host_devices))
    }
    return manifest(devices={key: value for key, value in entries.items() if value})


def machine(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a VirtualMachine whose runs are those of the given instance."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": document["spec"]}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": document["metadata"],
        "spec": {"template": template, **spec},
    }

"""A VirtualMachine as objects of Kubernetes' own controllers, which start it again as its runStrategy says. No I/O.

Always is a StatefulSet of one. RerunOnFailure and Once are Jobs that start no second guest while the first may still write
its disk. Halted is nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..vmi.instance import VirtualMachineInstance
from ..vmi.machine import VirtualMachine
from ..vmi.manifest import Manifest
from .pod import LABEL, PodSettings, config_map, launcher_pod, metadata, object_name, pod_template, vmi_digest

_ENDLESS = 2**31 - 1
_Make = Callable[[VirtualMachineInstance, PodSettings, bool], dict[str, Any]]


def objects(manifest: Manifest, settings: PodSettings, *, stopped: bool = False) -> list[dict[str, Any]]:
    """Return everything that a manifest becomes: the ConfigMap, and the pod of a VMI or the controller of a VM; nothing for Halted."""
    if not isinstance(manifest, VirtualMachine):
        return [config_map(manifest, settings), launcher_pod(manifest, settings)]
    made = workload(manifest, settings, stopped=stopped)
    return [machine_config(manifest, settings), made] if made else []


def machine_config(machine: VirtualMachine, settings: PodSettings, uid: str = "") -> dict[str, Any]:
    """Return the ConfigMap of a VM's next run, named by what is in it; uid: of its StatefulSet or Job, with which it goes away.

    A run whose launcher is started anew finds what its pod was made for, also when the VM was edited meanwhile.
    """
    vmi, made = machine.instance(), workload(machine, settings)
    owner = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": made["metadata"]["name"], "uid": uid} if made and uid else None
    return config_map(vmi, settings, owner, _config_name(vmi, settings))


def _config_name(vmi: VirtualMachineInstance, settings: PodSettings) -> str:
    return f"{object_name(vmi)}-{vmi_digest(vmi, settings)}"


def workload(machine: VirtualMachine, settings: PodSettings, *, stopped: bool = False) -> dict[str, Any] | None:
    """Return the StatefulSet or Job of a VM, None for Halted. stopped: it is there and runs nothing (no replica, or suspended).

    Faults: those of pod_template.
    """
    make = _STRATEGIES.get(machine.run_strategy)
    return make(machine.instance(), settings, stopped) if make else None


def _stateful_set(vmi: VirtualMachineInstance, settings: PodSettings, stopped: bool) -> dict[str, Any]:
    meta = metadata(vmi, settings)
    spec = {
        "replicas": 0 if stopped else 1,
        # the pods' subdomain; nobody has to make the Service
        "serviceName": meta["name"],
        "selector": {"matchLabels": {LABEL: vmi.name}},
        # an edit takes effect when the guest starts anew, as for KubeVirt
        "updateStrategy": {"type": "OnDelete"},
        "template": pod_template(vmi, settings, "Always", _config_name(vmi, settings)),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}


def _job(tries: int) -> _Make:
    def make(vmi: VirtualMachineInstance, settings: PodSettings, stopped: bool) -> dict[str, Any]:
        spec = {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": tries,
            "podReplacementPolicy": "Failed",
            "suspend": stopped,
            "template": pod_template(vmi, settings, "Never", _config_name(vmi, settings)),
        }
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(vmi, settings), "spec": spec}

    return make


_STRATEGIES: Mapping[str, _Make] = {"Always": _stateful_set, "RerunOnFailure": _job(_ENDLESS), "Once": _job(0)}

"""The launcher pod of a VirtualMachineInstance, and the ConfigMap that brings the VMI to it. No I/O.

Nothing here needs more than the Pod Security level "restricted" allows: uid 107, no capability, the runtime's seccomp
profile. Device nodes and the grant socket come from the device plugin when the kubelet calls Allocate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..device.faults import Refused, Unsupported
from ..vmi import mounts
from ..vmi.instance import VirtualMachineInstance
from ..vmi.manifest import Manifest
from ..vmi.spec import Spec
from .overhead import overhead, requested_memory

LABEL = "vfio.passthrough/vm"
DIGEST = "vfio.passthrough/vmi-digest"
UID = 107
KVM = "devices.kubevirt.io/kvm"
COMPUTE = "compute"
VMI_FOLDER, VMI_FILE = "/etc/vfio-passthrough", "vmi.json"
WORK = "/var/run/vfio-passthrough"
# the launcher needs time to see the guest off after the guest's own grace
EXTRA_GRACE = 30
_LONGEST_NAME = 49
_CPU_SHARE = 10


@dataclass(frozen=True)
class PodSettings:
    """What the manifest does not say: the launcher's image, whether the guest is emulated, and which resources are declared.

    declared: None when nobody knows; else a device of another resource is refused.
    """

    image: str
    emulated: bool = False
    pull_policy: str = "IfNotPresent"
    namespace: str = "default"
    declared: Sequence[str] | None = None


def instance_of(manifest: Manifest) -> VirtualMachineInstance:
    """Return the VMI, or Unsupported for a VirtualMachine, whose life by runStrategy this version does not follow."""
    if not isinstance(manifest, VirtualMachineInstance):
        raise Unsupported(
            what="run a VirtualMachine",
            subject=manifest.name,
            cause="this version runs a VirtualMachineInstance only",
            hint="write kind: VirtualMachineInstance with the template's metadata and spec",
        )
    return manifest


def object_name(vmi: VirtualMachineInstance) -> str:
    """Return the name of every object of this VM, "vm-NAME"; Refused for a NAME over 49 characters.

    Kubernetes' controllers add up to 11 characters, and a pod's host name has 63.
    """
    if len(vmi.name) > _LONGEST_NAME:
        raise Refused(
            what="name a VM's objects",
            subject=vmi.name,
            cause=f"the name has {len(vmi.name)} characters",
            hint=f"use at most {_LONGEST_NAME}",
        )
    return f"vm-{vmi.name}"


def check_declared(vmi: VirtualMachineInstance, declared: Sequence[str] | None) -> None:
    """Raise Refused, naming every device whose resource nobody declared (KubeVirt's validatePermittedHostDevices)."""
    if declared is None:
        return
    wrong = [f"{path} {device.name}: {device.device_name}" for path, device in vmi.spec.host_devices if device.device_name not in declared]
    if wrong:
        known = ", ".join(declared) or "none"
        raise Refused(
            what="run a VM",
            subject=f"{vmi.name}: {'; '.join(wrong)}",
            cause=f"nobody declared this resource (declared: {known})",
            hint="mend deviceName, or add the resource to hostdev_devices and run site.yml",
        )


def vmi_digest(vmi: VirtualMachineInstance, settings: PodSettings) -> str:
    """Return what tells two runs apart: 16 hex digits over the VMI and the settings."""
    content = json.dumps([vmi.to_dict(), settings.image, settings.emulated], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def config_map(vmi: VirtualMachineInstance, settings: PodSettings, owner: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the ConfigMap that holds the VMI; owner: {"name": .., "uid": ..} of the pod, with which it goes away."""
    meta = _metadata(vmi, settings)
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}]
    text = json.dumps(vmi.to_dict(), indent=1, sort_keys=True) + "\n"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {VMI_FILE: text}}


def launcher_pod(vmi: VirtualMachineInstance, settings: PodSettings) -> dict[str, Any]:
    """Return the pod; equal input gives an equal object. Refused for a resource that is not declared."""
    check_declared(vmi, settings.declared)
    meta = _metadata(vmi, settings)
    meta["labels"] = {**vmi.metadata.labels, **meta["labels"]}
    meta["annotations"] = {
        **vmi.metadata.annotations,
        "kubectl.kubernetes.io/default-container": COMPUTE,
        DIGEST: vmi_digest(vmi, settings),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _pod_spec(vmi, settings)}


def objects(manifest: Manifest, settings: PodSettings) -> list[dict[str, Any]]:
    """Return everything that a manifest becomes, for people: the ConfigMap and the pod."""
    vmi = instance_of(manifest)
    return [config_map(vmi, settings), launcher_pod(vmi, settings)]


def _metadata(vmi: VirtualMachineInstance, settings: PodSettings) -> dict[str, Any]:
    return {"name": object_name(vmi), "namespace": vmi.metadata.namespace or settings.namespace, "labels": {LABEL: vmi.name}}


def _pod_spec(vmi: VirtualMachineInstance, settings: PodSettings) -> dict[str, Any]:
    spec = vmi.spec
    chosen = {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [dict(one) for one in spec.tolerations],
        "affinity": dict(spec.affinity),
        "priorityClassName": spec.priority_class,
        "schedulerName": spec.scheduler,
    }
    volumes, places = _volumes(vmi)
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": spec.grace_seconds + EXTRA_GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{key: value for key, value in chosen.items() if value},
        "containers": [_container(spec, settings, places)],
        "volumes": volumes,
    }


def _container(spec: Spec, settings: PodSettings, places: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": COMPUTE,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "env": [{"name": "HOSTDEV_EMULATION", "value": "always" if settings.emulated else "never"}],
        "resources": _resources(spec, settings),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # the launcher makes this file when the domain runs and takes it away when it ends
        "readinessProbe": {"exec": {"command": ["test", "-e", f"{WORK}/ready"]}, "periodSeconds": 2, "failureThreshold": 1},
        "volumeMounts": places,
    }


def _resources(spec: Spec, settings: PodSettings) -> dict[str, dict[str, str]]:
    devices = {name: str(count) for name, count in spec.resources.items()}
    asked, limited = spec.domain.resources.requests, spec.domain.resources.limits
    extra = overhead(spec)
    requests = {
        "cpu": asked.cpu.text if asked.cpu else f"{-(-1000 * spec.domain.cpus // _CPU_SHARE)}m",
        "memory": str(requested_memory(spec) + extra),
        "ephemeral-storage": "50M",
        **devices,
    }
    limits = dict(devices) if settings.emulated else {KVM: "1", **devices}
    if limited.memory:
        limits["memory"] = str(limited.memory.ceil() + extra)
    if limited.cpu:
        limits["cpu"] = limited.cpu.text
    return {"limits": limits, "requests": requests}


def _volumes(vmi: VirtualMachineInstance) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pod's volumes and where the container has them; images are read-only image volumes (KEP-4639)."""
    rows: list[tuple[str, dict[str, Any], str, bool]] = [
        ("vmi", {"configMap": {"name": object_name(vmi)}}, VMI_FOLDER, True),
        ("work", {"emptyDir": {}}, WORK, False),
    ]
    boot = vmi.spec.domain.firmware.kernel_boot
    if boot and boot.container:
        rows.append(("kernel-boot", _image(boot.container.image, boot.container.pull_policy), mounts.KERNEL_BOOT, True))
    for volume in vmi.spec.volumes:
        disk = volume.container_disk
        if disk:
            rows.append((f"disk-{volume.name}", _image(disk.image, disk.pull_policy), mounts.container_disk_folder(volume.name), True))
    volumes = [{"name": name, **source} for name, source, _place, _fixed in rows]
    places = [{"name": name, "mountPath": place, **({"readOnly": True} if fixed else {})} for name, _source, place, fixed in rows]
    return volumes, places


def _image(reference: str, policy: str) -> dict[str, Any]:
    return {"image": {"reference": reference, **({"pullPolicy": policy} if policy else {})}}

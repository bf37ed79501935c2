"""The launcher pod of a VirtualMachineInstance, and the ConfigMap that brings the VMI to it. No I/O.

Nothing here but a hostDisk needs more than the Pod Security level "restricted" allows: uid 107, no capability, the runtime's
seccomp profile. Device nodes and the grant socket come from the device plugin when the kubelet calls Allocate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..device.faults import Refused, Unsupported
from ..vmi import gates
from ..vmi.instance import VirtualMachineInstance
from ..vmi.manifest import Manifest
from ..vmi.permitted import GPUS, HOST_DEVICES, refuse_unpermitted
from ..vmi.schema import write_object
from ..vmi.spec import Spec
from .effective import effective
from .networks import network_annotations
from .overhead import PLAIN, Sizing, locks_memory, memory_lock
from .resources import GRANT, asked_resources, container_resources
from .volumes import Volumes, add_volumes, pull_secrets

LABEL = "vfio.passthrough/vm"
DIGEST = "vfio.passthrough/vmi-digest"
UID = 107
COMPUTE = "compute"
VMI_FOLDER, VMI_FILE = "/etc/vfio-passthrough", "vmi.json"
WORK = "/var/run/vfio-passthrough"
# the launcher needs time to see the guest off after the guest's own grace
EXTRA_GRACE = 30
_LONGEST_NAME = 49
_ARCHITECTURE = "kubernetes.io/arch"
MEMORY_LOCK = "HOSTDEV_MEMORY_LOCK"
"""The launcher's variable: how many bytes it asks the grant socket to let it lock; absent when the guest locks none."""


@dataclass(frozen=True)
class PodSettings:
    """What the manifest does not say: the launcher's image, whether the guest is emulated, and which resources are declared.

    declared: None when nobody knows; else a device of another resource is refused. gates: KubeVirt's feature gates that are on.
    sizing: how overhead is reckoned. blocks: PersistentVolumeClaims whose volumeMode is Block.
    """

    image: str
    emulated: bool = False
    pull_policy: str = "IfNotPresent"
    namespace: str = "default"
    declared: Sequence[str] | None = None
    gates: frozenset[str] = gates.DEFAULTS
    sizing: Sizing = PLAIN
    blocks: frozenset[str] = frozenset()


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


def refuse_undeclared(vmi: VirtualMachineInstance, settings: PodSettings) -> None:
    """Raise Refused, naming what the guest asks for and nobody declared: devices as KubeVirt does, and our own for virtual functions."""
    off = [listed for name, listed in ((gates.GPUS_DRA, GPUS), (gates.HOST_DEVICES_DRA, HOST_DEVICES)) if name not in settings.gates]
    refuse_unpermitted(vmi.spec, settings.declared, off)
    if settings.declared is None or GRANT in settings.declared or GRANT not in asked_resources(vmi.spec, settings.gates).limits:
        return
    raise Refused(
        what="run a guest with SR-IOV networks",
        subject=", ".join(f"spec.domain.devices.interfaces[{index}]" for index, dummy in vmi.spec.sriov),
        cause=f"nobody declared {GRANT}, whose unit opens the group nodes that another plugin gives",
        hint="declare it and run site.yml, or declare the virtual functions themselves and ask for them in hostDevices",
    )


def vmi_digest(vmi: VirtualMachineInstance, settings: PodSettings) -> str:
    """Return what tells two runs apart: 16 hex digits over the VMI and the settings."""
    content = json.dumps([vmi.to_dict(), settings.image, settings.emulated], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def config_map(
    vmi: VirtualMachineInstance, settings: PodSettings, owner: Mapping[str, str] | None = None, name: str = ""
) -> dict[str, Any]:
    """Return the ConfigMap that holds the VMI.

    owner: name and uid of the object with which it goes away, its apiVersion and kind as well where it is no pod. name: of the
    ConfigMap where it is not the VM's.
    """
    meta = metadata(vmi, settings)
    meta["name"] = name or meta["name"]
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", **owner}]
    text = json.dumps(vmi.to_dict(), indent=1, sort_keys=True) + "\n"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {VMI_FILE: text}}


def launcher_pod(vmi: VirtualMachineInstance, settings: PodSettings) -> dict[str, Any]:
    """Return the pod; equal input gives an equal object. Refused for a resource that is not declared."""
    meta = metadata(vmi, settings)
    template = pod_template(vmi, settings)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, **template["metadata"]}, "spec": template["spec"]}


def pod_template(vmi: VirtualMachineInstance, settings: PodSettings, restart: str = "Never", config: str = "") -> dict[str, Any]:
    """Return labels, annotations and spec of the pod; Refused for a resource that is not declared.

    restart: its restartPolicy. config: its ConfigMap where that has not the VM's name.
    """
    refuse_undeclared(vmi, settings)
    meta = metadata(vmi, settings)
    annotations = {
        **vmi.metadata.annotations,
        **network_annotations(vmi.spec, meta["namespace"]),
        "kubectl.kubernetes.io/default-container": COMPUTE,
        DIGEST: vmi_digest(vmi, settings),
    }
    labels = {**vmi.metadata.labels, **meta["labels"]}
    spec = _pod_spec(vmi, settings, config or meta["name"])
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"restartPolicy": restart, **spec}}


def metadata(vmi: VirtualMachineInstance, settings: PodSettings) -> dict[str, Any]:
    """Return name, namespace and our label, which every object of this VM has."""
    return {"name": object_name(vmi), "namespace": vmi.metadata.namespace or settings.namespace, "labels": {LABEL: vmi.name}}


def _pod_spec(vmi: VirtualMachineInstance, settings: PodSettings, config: str) -> dict[str, Any]:
    spec = vmi.spec
    chosen = {
        "nodeSelector": {**({_ARCHITECTURE: spec.architecture} if spec.architecture else {}), **spec.node_selector},
        "tolerations": [dict(one) for one in spec.tolerations],
        "affinity": dict(spec.affinity),
        "priorityClassName": spec.priority_class,
        "schedulerName": spec.scheduler,
        "topologySpreadConstraints": [dict(one) for one in spec.spread],
        "imagePullSecrets": [{"name": name} for name in pull_secrets(spec)],
        "resourceClaims": [write_object(claim) for claim in spec.resource_claims],
    }
    places = Volumes()
    places.add("vmi", {"configMap": {"name": config}}, VMI_FOLDER)
    places.add("work", {"emptyDir": {}}, WORK, fixed=False)
    add_volumes(places, spec, settings.blocks)
    return {
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
        "volumes": places.volumes,
    }


def _container(spec: Spec, settings: PodSettings, places: Volumes) -> dict[str, Any]:
    return {
        "name": COMPUTE,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "env": [{"name": name, "value": value} for name, value in _environment(spec, settings).items()],
        "resources": container_resources(spec, emulated=settings.emulated, gates=settings.gates, sizing=settings.sizing),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # the launcher makes this file when the domain runs and takes it away when it ends
        "readinessProbe": {"exec": {"command": ["test", "-e", f"{WORK}/ready"]}, "periodSeconds": 2, "failureThreshold": 1},
        "volumeMounts": places.mounts,
        **({"volumeDevices": places.devices} if places.devices else {}),
    }


def _environment(spec: Spec, settings: PodSettings) -> dict[str, str]:
    full = effective(spec)
    lock = memory_lock(full, settings.sizing) if locks_memory(full, settings.sizing) else 0
    by_numa = gates.NUMA_TOPOLOGY in settings.gates and spec.domain.cpu.dedicated
    return {
        "HOSTDEV_EMULATION": "always" if settings.emulated else "never",
        **({MEMORY_LOCK: str(lock)} if lock else {}),
        **({"HOSTDEV_BY_NUMA": "true"} if by_numa else {}),
    }

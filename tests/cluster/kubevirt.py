"""KubeVirt as far as an API server knows it: definitions of the kinds that are asked for, without anything that acts on them.

The fields of the KubeVirt kind that matter here have the real one's schema (PermittedHostDevices and DeveloperConfiguration
of kubevirt.io/api/core/v1: required keys, lists that are replaced whole, unknown fields dropped); the rest is let through.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.api import Api
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import Merge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt_api import KubeVirts, converge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import Wanted, wanted

from .controlplane import ControlPlane

GROUP = "kubevirt.io"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string"}


def record(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    """Return the schema of a map of which only these keys are kept."""
    made: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return {**made, "required": list(required)} if required else made


def listed(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list that is one value to whoever writes it."""
    return {"type": "array", "items": dict(items), "x-kubernetes-list-type": "atomic"}


def permitted(*, usb: bool = True) -> dict[str, Any]:
    """Return the schema of permittedHostDevices; usb=False as before KubeVirt 1.1."""
    served = {"resourceName": TEXT, "externalResourceProvider": {"type": "boolean"}}
    selector = record({"vendor": TEXT, "product": TEXT}, ("vendor", "product"))
    lists = {
        "pciHostDevices": listed(record({"pciVendorSelector": TEXT, **served}, ("pciVendorSelector", "resourceName"))),
        "mediatedDevices": listed(record({"mdevNameSelector": TEXT, **served}, ("mdevNameSelector", "resourceName"))),
        "usb": listed(record({"selectors": listed(selector), **served}, ("resourceName",))),
    }
    return record({name: schema for name, schema in lists.items() if usb or name != "usb"})


def kubevirt_schema(*, usb: bool = True) -> dict[str, Any]:
    """Return the schema of a KubeVirt object."""
    gates = {"featureGates": listed(TEXT), "disabledFeatureGates": listed(TEXT)}
    configuration = {
        "permittedHostDevices": permitted(usb=usb),
        "developerConfiguration": record({**gates, "logVerbosity": OPEN}),
        "network": OPEN,
    }
    return record({"spec": record({"configuration": record(configuration), "imagePullPolicy": TEXT}), "status": OPEN})


def definition(plural: str, kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a namespaced kind of KubeVirt's group."""
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": dict(schema)}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


def definitions(*, usb: bool = True) -> list[dict[str, Any]]:
    """Return the definitions of KubeVirt, VirtualMachine and VirtualMachineInstance."""
    return [
        definition("kubevirts", "KubeVirt", kubevirt_schema(usb=usb)),
        definition("virtualmachines", "VirtualMachine", record({"spec": OPEN, "status": OPEN})),
        definition("virtualmachineinstances", "VirtualMachineInstance", record({"spec": OPEN, "status": OPEN})),
    ]


def crd_names() -> list[str]:
    """Return the names of the definitions."""
    return [one["metadata"]["name"] for one in definitions()]


def install(plane: ControlPlane) -> None:
    """Define the kinds and wait until the API server serves them."""
    plane.apply(definitions())
    plane.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in crd_names()), "--timeout=60s")


def wish(*devices: dict[str, Any]) -> Wanted:
    """Return what a declaration asks for."""
    return wanted([parse_declaration(devices)])


def pci(device: str, resource: str) -> dict[str, Any]:
    """Return an entry as we write it."""
    return {"pciVendorSelector": device, "resourceName": resource, "externalResourceProvider": True}


class Cluster:
    """The KubeVirt object as its administrator has it, looked at and changed by kubectl."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def configure(self, configuration: dict[str, Any] | None, **metadata: Any) -> None:
        spec = {} if configuration is None else {"configuration": configuration}
        self.write("KubeVirt", "kubevirt", spec, **metadata)

    def write(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        meta = {"name": name, "namespace": "kubevirt", **metadata}
        text = json.dumps({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": meta, "spec": spec})
        self.plane.kubectl("create", "-f", "-", input=text)

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.get("kubevirt", "kubevirt", "-n", "kubevirt")
        return found

    def spec(self) -> str:
        """Return the object's spec as one text."""
        return json.dumps(self.read()["spec"], sort_keys=True)

    def patch(self, patch: dict[str, Any]) -> None:
        self.plane.kubectl("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type=merge", "-p", json.dumps(patch))

    def objects(self, kubeconfig: Path | None = None, name: str = "kubevirt") -> KubeVirts:
        return KubeVirts(Api(str(kubeconfig or self.plane.kubeconfig)), "kubevirt", name)

    def bring(self, *devices: dict[str, Any], dry_run: bool = False) -> Merge:
        return converge(self.objects(), wish(*devices), dry_run, sleep=lambda _seconds: None)

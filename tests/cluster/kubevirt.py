"""KubeVirt as far as an API server knows it: definitions of the kinds that are asked for, without anything that acts on them.

The fields of the KubeVirt kind that matter here have the real one's schema (PermittedHostDevices and DeveloperConfiguration
of kubevirt.io/api/core/v1: required keys, lists that are replaced whole, unknown fields dropped); the rest is let through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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

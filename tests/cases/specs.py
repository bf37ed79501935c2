"""A case's spec as a value: typed, and not asked whether this version serves it all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.schema import Reading, read_object
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec

BARE = "cases.test/"


def spec_of(value: Mapping[str, Any]) -> Spec:
    """Return the spec; a missing domain is an empty one, and Refused when a field is unknown or of another type."""
    reading = Reading()
    spec: Spec = read_object(Spec, {"domain": {}, **value}, "spec", reading)
    reading.finish("read a case", "")
    return spec


def named(resource: str) -> str:
    """Return a resource name as Kubernetes takes it: names without a slash are the cases' own."""
    return resource if "/" in resource or not resource else BARE + resource


def devices(entries: Any) -> list[dict[str, Any]]:
    """Return entries of gpus or hostDevices with such names."""
    return [{**one, **({"deviceName": named(one["deviceName"])} if "deviceName" in one else {})} for one in entries or ()]

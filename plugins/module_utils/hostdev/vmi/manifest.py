"""parse_manifest: from a document to a VirtualMachineInstance or a VirtualMachine, strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable, Dict, Tuple, Union

from ..device.faults import Refused
from .checks import check_spec
from .instance import API_VERSION, VirtualMachineInstance
from .machine import VirtualMachine, check_run
from .schema import Problems, Reading, read_object

Manifest = Union[VirtualMachineInstance, VirtualMachine]
_HINT = "Mend the manifest; this version serves a part of kubevirt.io/v1 and takes no field that it would not honour"


def _check_instance(vmi: VirtualMachineInstance) -> Problems:
    yield from check_spec(vmi.spec, "spec")


def _check_machine(machine: VirtualMachine) -> Problems:
    yield from check_run(machine.spec)
    yield from check_spec(machine.spec.template.spec, "spec.template.spec")


_KINDS: Dict[str, Tuple[type, Callable[[Any], Iterator[Tuple[str, str]]]]] = {
    "VirtualMachineInstance": (VirtualMachineInstance, _check_instance),
    "VirtualMachine": (VirtualMachine, _check_machine),
}


def parse_manifest(document: Any) -> Manifest:
    """Return the value of a KubeVirt-style document; Refused names every field that is wrong by its path.

    Unknown fields, wrong types, names that Kubernetes or libvirt would not take, two devices of one name and what this
    version does not serve are refused. No default is written into the value: properties answer with them.
    """
    if not isinstance(document, Mapping):
        raise Refused(
            what="read a manifest", subject="the document", cause=f"has to be a mapping, is {type(document).__name__}", hint=_HINT
        )
    kind, version = document.get("kind"), document.get("apiVersion")
    if version != API_VERSION or kind not in _KINDS:
        raise Refused(
            what="read a manifest",
            subject=f"apiVersion {version!r}, kind {kind!r}",
            cause=f"apiVersion has to be {API_VERSION} and kind one of {', '.join(_KINDS)}",
            hint=_HINT,
        )
    cls, check = _KINDS[str(kind)]
    reading = Reading()
    value: Manifest = read_object(cls, {key: item for key, item in document.items() if key not in ("apiVersion", "kind")}, "", reading)
    for path, cause in check(value) if not reading.problems else ():
        reading.wrong(path, cause)
    reading.finish(f"read a {kind}", _HINT)
    return value

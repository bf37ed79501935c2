"""Adapter of launcher-admission-other.json: a spec, gates and permitted selectors to the causes of a refusal.

What the parser refuses by its path is a cause of type Invalid here, as it is for KubeVirt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.admission import (
    INVALID,
    Cause,
    Policy,
    Question,
    admit,
    grace_causes,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import GATES, open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.grace import selectors_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.schema import Reading, read_object
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import devices

SECTIONS = ("cases",)
_GIVEN = {"gates", "gates_on", "permitted", "defaultArchitecture", "spec", "annotations"}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per spec; `grace_causes` are those of the Grace rules alone."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {"": ""}), case.get("want", case.get("expect", {}))
        named = {*given.get("gates", {}), *given.get("gates_on", ())}
        known = set(given) <= _GIVEN and named <= set(GATES) and len(want) == 1 and set(want) <= {"causes", "grace_causes"}
        yield Case(case["id"], partial(_check, given, *dict(want).popitem()) if known else None)


def _check(given: Mapping[str, Any], which: str, want: list[dict[str, str]]) -> None:
    gates = given.get("gates", {})
    on = [*given.get("gates_on", ()), *(name for name, value in gates.items() if value)]
    policy = Policy(
        gates=open_gates(on, [name for name, value in gates.items() if not value]),
        selectors=selectors_of(given.get("permitted")),
        architecture=given.get("defaultArchitecture", "amd64"),
    )
    got = _causes(given, which, policy)
    same(sorted((cause.type, cause.field) for cause in got), sorted((one["type"], one["field"]) for one in want))
    for one in want:
        said = " ".join(cause.message for cause in got if (cause.type, cause.field) == (one["type"], one["field"]))
        same("" if one.get("message_contains", "") in said else said, "")


def _causes(given: Mapping[str, Any], which: str, policy: Policy) -> list[Cause]:
    reading = Reading()
    spec: Spec = read_object(Spec, _document(given["spec"]), "spec", reading)
    if reading.problems:
        return [Cause(INVALID, path, text) for path, text in reading.problems]
    annotations = given.get("annotations", {})
    if which == "grace_causes":
        return list(grace_causes(Question(spec, annotations, policy, "spec", "metadata")))
    return list(admit(VirtualMachineInstance(metadata=Metadata(name="case", annotations=annotations), spec=spec), policy))


def _document(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with an empty architecture as an absent one, as Go's is."""
    domain = spec.get("domain", {})
    listed = domain.get("devices", {})
    named = {key: devices(listed[key]) for key in ("gpus", "hostDevices") if key in listed}
    return {**spec, "architecture": spec.get("architecture") or None, "domain": {**domain, "devices": {**listed, **named}}}

"""Adapter of migration-conditions.json: how many devices of which kind to whether the guest can move, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import VGPU_MIGRATION, open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.migration import not_migratable
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

SECTIONS = ("cases",)
_KEYS = {"name", "how", "hostDevices", "gpus", "sriov", "gate", "dra", "listed_in", "message", "migratable"}
_RESOURCE = "x.io/y"


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest."""
    for case in document.get("cases", ()):
        yield Case(case["name"], partial(_check, case) if set(case) <= _KEYS and "migratable" in case else None)


def _check(case: Mapping[str, Any]) -> None:
    origin = {"claimName": "c", "requestName": "r"} if case.get("dra") else {"deviceName": _RESOURCE}
    devices = {key: [{"name": f"{key}{number}", **origin} for number in range(case.get(key, 0))] for key in ("gpus", "hostDevices")}
    functions = [{"name": f"net{number}", "sriov": {}} for number in range(case.get("sriov", 0))]
    spec = spec_of({"domain": {"devices": {**devices, "interfaces": functions}}})
    mediated = [_RESOURCE] if case.get("listed_in") == "mediatedDevices" else []
    why = not_migratable(spec, open_gates([VGPU_MIGRATION] if case.get("gate") else []), mediated)
    same(not why, case["migratable"])
    same(case["message"] if (case["message"] or "") in why else why, case["message"])

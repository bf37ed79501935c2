"""Adapter of launcher-migration-hotplug.json: whether a guest can move. Hooks, hot-plug and targets are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import VGPU_MIGRATION, open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.migration import REASON, not_migratable
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import devices, named, spec_of

SECTIONS = ("cases",)
_GIVEN = {"gate", "permitted", "gpus", "hostDevices", "interfaces"}
_WANTED = {"migratable", "reason", "message"}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {"": ""}), case.get("want", case.get("expect", {}))
        known = set(given) <= _GIVEN and "migratable" in want and set(want) <= _WANTED
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    lists = {key: devices(given.get(key)) for key in ("gpus", "hostDevices")}
    spec = spec_of({"domain": {"devices": {**lists, "interfaces": given.get("interfaces", [])}}})
    mediated = [named(one["resourceName"]) for one in given.get("permitted", {}).get("mediatedDevices", ())]
    why = not_migratable(spec, open_gates([VGPU_MIGRATION] if given["gate"] else []), mediated)
    got = {"migratable": not why, **({"reason": REASON, "message": why} if why else {})}
    same(got, dict(want))

"""Adapter of memory-overhead.json: a spec to the pod's overhead and the guest's limit of locked memory, in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.overhead import Sizing, memory_lock, overhead, vfio_count
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

SECTIONS = ("cases",)
_KEYS = {"name", "arch", "ratio", "vmi_spec", "expected", "want", "also"}
_WANTED = {"overhead_bytes", "memlock_bytes", "vfio_devices_counted"}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per spec."""
    for case in document.get("cases", ()):
        want = case.get("want", case.get("expected"))
        known = set(case) <= _KEYS and isinstance(want, dict) and set(want) <= _WANTED
        yield Case(case["name"], partial(_check, case, want) if known else None)


def _check(case: Mapping[str, Any], want: Mapping[str, int]) -> None:
    spec = spec_of(case["vmi_spec"])
    sizing = Sizing(ratio=float(case.get("ratio") or 1), architecture=case.get("arch") or "amd64")
    got = {
        "overhead_bytes": overhead(spec, sizing),
        "memlock_bytes": memory_lock(spec, sizing),
        "vfio_devices_counted": vfio_count(spec, sizing),
    }
    same({name: got[name] for name in want}, dict(want))

"""Adapter of launcher-memlock.json: how much memory a launcher asks to lock, and whether it asks at all.

KubeVirt's two processes, virtqemud before the start and QEMU after it, are one here: what connects to the grant socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.overhead import locks_memory, memory_lock, overhead
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

SECTIONS = ("cases",)
_GIVEN = {"requests_memory", "vcpus", "devices", "reservedOverhead", "targetMemoryOverhead_bytes"}
_WANTED = {"extra_over_no_devices_bytes", "tolerance_bytes", "overhead_bytes", "memlock_bytes", "rlimit_set"}
_KINDS = {"gpus", "hostDevices", "sriov"}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest; the process that gets the limit is not known, ours is another."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = set(given) <= _GIVEN and set(want) <= _WANTED and bool(want) and set(given.get("devices", ())) <= _KINDS
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    spec = _spec(given, given.get("devices", {}))
    lock = memory_lock(spec, extra=given.get("targetMemoryOverhead_bytes"))
    got: dict[str, Any] = {"overhead_bytes": overhead(spec), "memlock_bytes": lock, "rlimit_set": locks_memory(spec)}
    if "extra_over_no_devices_bytes" in want:
        far = lock - memory_lock(_spec(given, {})) - want["extra_over_no_devices_bytes"]
        same(f"{far} bytes off" if abs(far) > want.get("tolerance_bytes", 0) else "", "")
    exact = {name: value for name, value in want.items() if name in got}
    same({name: got[name] for name in exact}, exact)


def _spec(given: Mapping[str, Any], counts: Mapping[str, int]) -> Spec:
    def entries(kind: str) -> list[dict[str, str]]:
        return [{"name": f"{kind}{number}", "deviceName": "x.io/y"} for number in range(counts.get(kind, 0))]

    memory, requests = given.get("reservedOverhead"), given.get("requests_memory")
    functions = [{"name": f"net{number}", "sriov": {}} for number in range(counts.get("sriov", 0))]
    domain: dict[str, Any] = {"devices": {"gpus": entries("gpus"), "hostDevices": entries("hostDevices"), "interfaces": functions}}
    domain["memory"] = {"reservedOverhead": memory} if memory else {}
    domain["resources"] = {"requests": {"memory": requests}} if requests else {}
    domain["cpu"] = {"cores": given["vcpus"]} if "vcpus" in given else {}
    return spec_of({"domain": domain})

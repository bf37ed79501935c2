"""Adapter of launcher-address-pool.json: values of variables to a sequence of addresses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import Exhausted, Pools, Unset, read_pools
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per pool."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = {"env", "prefix", "resources"} <= set(given) and set(want) in ({"pops"}, {"refused"})
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: dict[str, Any], want: dict[str, Any]) -> None:
    try:
        pools = read_pools(given["env"], given["prefix"], given["resources"], str)
    except Refused as fault:
        same({"refused": want["refused"] if want.get("refused", "\0") in str(fault) else str(fault)}, want)
        return
    asked = [resource for resource, dummy in want.get("pops", ())]
    same({"pops": [[resource, _take(pools, resource, given.get("best_effort", False))] for resource in asked]}, want)


def _take(pools: Pools[str], resource: str, best_effort: bool) -> Any:
    try:
        return pools.take(resource)
    except Unset:
        return "" if best_effort else {"error": "ADDR_RESOURCE_MISSING"}
    except Exhausted:
        return "" if best_effort else {"error": "ADDR_EXHAUSTED"}

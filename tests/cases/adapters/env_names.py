"""Adapter of env-names.json: names of variables, names that collide, reading of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import PREFIXES, collisions, variable
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import read_pools
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

_RESOURCE = "example.com/device"


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield the sections; documentation_traps and pop_rules are prose, and tests of their own."""
    yield Case("prefixes", partial(same, PREFIXES, document["prefixes"]))
    for case in document["cases"]:
        yield Case(f"cases {case['resource']!r}", partial(_check_names, case))
    for pair in document["collisions"]:
        yield Case(f"collisions {pair}", partial(_check_collision, pair))
    for case in document["parse"]:
        yield Case(f"parse {case['value']!r}", partial(_check_value, case))


def _check_names(case: dict[str, Any]) -> None:
    kinds = [kind for kind in PREFIXES if kind in case]
    same({kind: variable(PREFIXES[kind], case["resource"]) for kind in kinds}, {kind: case[kind] for kind in kinds})


def _check_collision(pair: list[str]) -> None:
    same([list(found) for found in collisions(pair)], [pair])


def _check_value(case: dict[str, Any]) -> None:
    want = case.get("want", {"addresses": case["addresses"]})
    name = variable(PREFIXES["pci"], _RESOURCE)
    try:
        pool = read_pools({} if case["value"] is None else {name: case["value"]}, PREFIXES["pci"], [_RESOURCE], str).of(_RESOURCE)
        got: dict[str, Any] = {"addresses": None if pool.value is None else pool.addresses}
    except Refused as fault:
        got = {"refused": want["refused"] if want.get("refused", "\0") in str(fault) else str(fault)}
    same(got, want)

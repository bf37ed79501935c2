"""Adapter of env-names.json: names of variables, names that collide, reading of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import PREFIXES, collisions, variable
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import read_pools
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("prefixes", "cases", "collisions", "documentation_traps", "parse")
_RESOURCE = "example.com/device"


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield the sections; pop_rules are sentences, with tests of their own."""
    if "prefixes" in document:
        yield Case("prefixes", partial(same, PREFIXES, document["prefixes"]))
    for case in document.get("cases", ()):
        yield Case(f"cases {case.get('resource')!r}", partial(_check_names, case) if "resource" in case else None)
    for pair in document.get("collisions", ()):
        yield Case(f"collisions {pair}", partial(_check_collision, pair))
    for trap in document.get("documentation_traps", ()):
        known = {"text_in_kubevirt_docs", "real"} <= set(trap)
        yield Case(f"documentation_traps {trap.get('real')!r}", partial(_check_trap, trap) if known else None)
    for case in document.get("parse", ()):
        known = "value" in case and set(_value_wanted(case)) in ({"addresses"}, {"refused"})
        yield Case(f"parse {case.get('value')!r}", partial(_check_value, case) if known else None)


def _check_names(case: dict[str, Any]) -> None:
    kinds = [kind for kind in PREFIXES if kind in case]
    same({kind: variable(PREFIXES[kind], case["resource"]) for kind in kinds}, {kind: case[kind] for kind in kinds})


def _check_collision(pair: list[str]) -> None:
    same([list(found) for found in collisions(pair)], [pair])


def _check_trap(trap: dict[str, str]) -> None:
    """Name the variable of what the documentation has, behind the prefix: a name of such letters never stays as it is there."""
    written = trap["text_in_kubevirt_docs"]
    prefix = next(one for one in PREFIXES.values() if written.startswith(f"{one}_"))
    same(variable(prefix, written[len(prefix) + 1 :]), trap["real"])


def _value_wanted(case: dict[str, Any]) -> dict[str, Any]:
    wanted: dict[str, Any] = case.get("want", {"addresses": case["addresses"]} if "addresses" in case else {})
    return wanted


def _check_value(case: dict[str, Any]) -> None:
    want = _value_wanted(case)
    name = variable(PREFIXES["pci"], _RESOURCE)
    try:
        pool = read_pools({} if case["value"] is None else {name: case["value"]}, PREFIXES["pci"], [_RESOURCE], str).of(_RESOURCE)
        got: dict[str, Any] = {"addresses": None if pool.value is None else pool.addresses}
    except Refused as fault:
        got = {"refused": want["refused"] if want.get("refused", "\0") in str(fault) else str(fault)}
    same(got, want)

"""Adapter of launcher-env-names.json: names of variables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import variable
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per name."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = set(given) == {"prefix", "resource"} and set(want) == {"env"}
        yield Case(case["id"], partial(_check, given, want) if known else None)


def _check(given: dict[str, str], want: dict[str, str]) -> None:
    same({"env": variable(given["prefix"], given["resource"])}, want)

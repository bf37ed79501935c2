"""Adapter of pci-selectors.json: one parser for pciVendorSelector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per selector with a `want`."""
    for case in document.get("cases", ()):
        known = "selector" in case and set(case.get("want", ())) in ({"id"}, {"refused"})
        yield Case(repr(case.get("selector")), partial(_check, case["selector"], case["want"]) if known else None)


def _check(selector: str, want: dict[str, str]) -> None:
    block = {"pciHostDevices": [{"pciVendorSelector": selector, "resourceName": "example.com/device"}]}
    try:
        (entry,) = parse_declaration(permitted=block).entries
        got = {"id": want["id"] if entry.selectors[0].id == want.get("id", "").lower() else entry.selectors[0].id}
    except Refused as fault:
        got = {"refused": want["refused"] if want.get("refused", "\0") in str(fault) else str(fault)}
    same(got, want)

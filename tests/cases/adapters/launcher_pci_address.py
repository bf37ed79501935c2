"""Adapter of launcher-pci-address.json: the parser of PCI addresses and the form of its fields in XML."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import coordinates
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per address."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = set(given) == {"address"} and set(want) in ({"fields"}, {"error"}, {"xml_address"})
        yield Case(case["id"], partial(_check, given["address"], want) if known else None)


def _check(text: str, want: dict[str, Any]) -> None:
    try:
        xml = coordinates(Address.parse(text))
    except Refused:
        same({"error": "PCI_ADDR_PARSE"}, want)
        return
    got: dict[str, Any] = {"fields": [value[2:] for value in xml.values()]} if "fields" in want else {"xml_address": xml}
    same(got, _lower(want))


def _lower(want: dict[str, Any]) -> dict[str, Any]:
    if "fields" in want:
        return {"fields": [field.lower() for field in want["fields"]]}
    if "xml_address" in want:
        return {"xml_address": {key: value.lower() for key, value in want["xml_address"].items() if key != "type"}}
    return want

"""Adapter of usb-discovery.json: trees and a configuration to plugins, plugged devices as lists, and Allocate answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import PREFIXES, variable
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.tests.cases import discovery
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases", "more", "unit_test_cases")
_RESOURCE, _IDS = "kubevirt.io/storage", ("46f4", "0001")
_PLUGGED = {"vendor", "product", "bus", "device", "path"}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield the cases of all three sections; what needs an unknown field is not known."""
    yield from discovery.cases(document)
    for case in document.get("more", ()):
        yield Case(case["name"], _more(case.get("input", {}), discovery.wanted(case)))
    for case in document.get("unit_test_cases", ()):
        known = all(set(one) == _PLUGGED for one in case.get("plugged", ({},)))
        yield Case(case["name"], partial(_check_plugged, case, discovery.wanted(case)) if known else None)


def _more(given: Mapping[str, Any], want: Mapping[str, Any]) -> Any:
    """Return the check of a case that is told by another shape of input than a tree; None when that is not known."""
    if set(given) == {"usb_bus_folder"} and given["usb_bus_folder"] == "missing":
        return partial(discovery.check, {"permittedHostDevices": {"usb": [_entry(_RESOURCE)]}}, want)
    if set(given) == {"devices", "containers"} and discovery.is_answer(want):
        return partial(_check_call, given, want)
    return partial(discovery.check, given, want) if discovery.is_known(given) else None


def _entry(resource: str) -> dict[str, Any]:
    return {"resourceName": resource, "selectors": [dict(zip(("vendor", "product"), _IDS))]}


def _resource(want: Mapping[str, Any]) -> str:
    """Return a resource of which the wanted variable is; these cases tell no other name of it."""
    names = [name for answer in want.get("container_responses", ()) for name in answer.get("envs", ())]
    *domain, name = (names or [variable(PREFIXES["usb"], _RESOURCE)])[0].removeprefix(f"{PREFIXES['usb']}_").lower().split("_")
    return f"{'.'.join(domain)}/{name}"


def _check_call(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Compare an Allocate call for units that the case calls ID0, ID1 and so on, each of one device."""
    rows = [_row(number, int(_IDS[0], 16), int(_IDS[1], 16), one) for number, one in enumerate(given["devices"])]
    with discovery.tree({"usb": rows}) as host:
        resource = _resource(want)
        declaration = parse_declaration(permitted={"usb": [_entry(resource)]})

        def look() -> Any:
            return [replace(offer, id=f"ID{number}") for number, offer in enumerate(find(host.root, declaration).offers)]

        discovery.check_allocate(host, resource, given["containers"], look(), look, want)


def _check_plugged(case: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    try:
        declaration = parse_declaration(permitted={"usb": case["config"]})
    except Fault as fault:
        discovery.same_refusal(fault, want)
        return
    rows = [_row(number, one["vendor"], one["product"], one) for number, one in enumerate(case["plugged"])]
    with discovery.tree({"usb": rows}) as host:
        offers = find(host.root, declaration).offers
    got: dict[str, list[list[str]]] = {}
    for offer in offers:
        got.setdefault(offer.resource, []).append([node.split("/bus/usb/")[1] for node in offer.required])
    same({name: sorted(got[name]) for name in sorted(got)}, {name: sorted(want[name]) for name in sorted(want)})


def _row(number: int, vendor: int, product: int, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plugged device as an entry of the bus folder; the names have the order of the numbers."""
    told = f"DEVNAME={one['path'].removeprefix('/dev/')}\nPRODUCT={vendor:x}/{product:x}/100\n"
    place = f"BUSNUM={one['bus']:03d}\nDEVNUM={one['device']:03d}\n"
    return {"name": f"1-{number:03d}", "uevent": told + place, "has_idVendor": True}

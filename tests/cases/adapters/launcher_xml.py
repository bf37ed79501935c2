"""Adapter of launcher-xml.json, PCI part: values to XML, compared as parsed XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Optional
from xml.etree import ElementTree as ET

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.controllers import Controller, controller_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.elements import to_text
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import GuestPlace, Hostdev, hostdev_element
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_HOSTDEV = {"type", "mode", "managed", "alias", "source", "display", "ramfb", "boot_order", "address", "driver", "acpi"}
_CONTROLLER = {"type", "index", "model", "address", "pcihole64"}
_NUMBERS = ("domain", "bus", "slot", "function")


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per element; elements that are neither PCI hostdevs nor plain PCI controllers are not known."""
    for case in document.get("cases", ()):
        given, want = case.get("given", {}), case.get("want", case.get("expect", {}))
        known = set(want) == {"xml"} and isinstance(want["xml"], str)
        element = _element(given) if known else None
        yield Case(case["id"], None if element is None else partial(_check, to_text(element), want["xml"]))


def _element(given: dict[str, Any]) -> Any:
    if set(given) == {"hostdev"}:
        return _hostdev(given["hostdev"])
    if set(given) == {"controller"}:
        return _controller(given["controller"])
    return None


def _hostdev(given: dict[str, Any]) -> Any:
    odd = set(given.get("driver", {})) - {"iommufd"} | set(given.get("acpi", {})) - {"nodeset"}
    if given["type"] != "pci" or set(given) - _HOSTDEV or odd:
        return None
    return hostdev_element(
        Hostdev(
            alias=given["alias"],
            source=_address(given["source"]),
            guest=_place(given.get("address")),
            boot_order=given.get("boot_order"),
            display=given.get("display") == "on",
            ramfb=given.get("ramfb") == "on",
            iommufd=given.get("driver", {}).get("iommufd") == "yes",
            nodeset=given.get("acpi", {}).get("nodeset", ""),
        )
    )


def _controller(given: dict[str, Any]) -> Any:
    hole = given.get("pcihole64", {})
    if given["type"] != "pci" or set(given) - _CONTROLLER or hole.get("unit", "KiB") != "KiB":
        return None
    return controller_element(Controller(int(given["index"]), given["model"], hole.get("value"), _place(given.get("address"))))


def _address(given: Mapping[str, str]) -> Address:
    return Address(*(int(given[key], 0) for key in _NUMBERS))


def _place(given: Optional[Mapping[str, str]]) -> Optional[GuestPlace]:
    return GuestPlace(_address(given), given.get("multifunction") == "on") if given else None


def _check(got: str, want: str) -> None:
    same(_normal(ET.fromstring(got)), _normal(ET.fromstring(want)))


def _normal(element: ET.Element) -> Any:
    # libvirt reads 2 and 0x02 alike
    numbers = _NUMBERS if element.tag == "address" else ()
    attributes = {key: int(value, 0) if key in numbers else value for key, value in element.attrib.items()}
    children = sorted((_normal(child) for child in element), key=repr)
    return [element.tag, sorted(attributes.items()), (element.text or "").strip(), children]

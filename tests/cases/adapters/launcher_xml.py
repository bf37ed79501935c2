"""Adapter of launcher-xml.json: values to XML, compared as parsed XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Optional
from xml.etree import ElementTree as ET

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.addresses import MdevAddress, UsbAddress
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.controllers import Controller, controller_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.elements import to_text
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.hostdev import GuestPlace, Hostdev, hostdev_element
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sriov import NetworkAddresses
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.hostdevs import address_of, with_uuids
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of
from ansible_collections.vfio.passthrough.tests.fakes.manifests import manifest

SECTIONS = ("cases",)
_HOSTDEV = {"type", "mode", "managed", "model", "alias", "source", "display", "ramfb", "boot_order", "address", "driver", "acpi"}
_CONTROLLER = {"type", "index", "model", "address", "pcihole64", "target"}
_SOURCES: Mapping[str, Callable[[dict[str, str]], Any]] = {
    "pci": address_of,
    "mdev": lambda given: MdevAddress.parse(given["uuid"]),
    "usb": lambda given: UsbAddress(int(given["bus"]), int(given["device"])),
}
_NUMBERS = ("domain", "bus", "slot", "function")


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per element; an element of another kind is not known."""
    for case in document.get("cases", ()):
        given, want = with_uuids(case.get("given", {})), with_uuids(case.get("want", case.get("expect", {})))
        if set(given) == {"iommufd"}:
            yield Case(case["id"], partial(_check_iommufd, given["iommufd"], want["xml"]))
            continue
        if set(want) == {"aliases"}:
            yield Case(case["id"], partial(_check_order, given, want["aliases"]))
            continue
        known = set(want) == {"xml"} and isinstance(want["xml"], str)
        element = _element(given) if known else None
        yield Case(case["id"], None if element is None else partial(_check, to_text(element), want["xml"]))


def _check_order(given: dict[str, list[str]], want: list[str]) -> None:
    """Render a guest with these devices; a device of another kind, which is there before them, does not come into it."""
    lists = {key: [alias.partition("-")[2] for alias in given[key]] for key in ("generic", "gpu", "sriov")}
    keys = {"generic": "hostDevices", "gpu": "gpus"}
    devices = {key: [{"name": name, "deviceName": f"x.io/{name}"} for name in lists[ours]] for ours, key in keys.items()}
    networks = [{"name": name, "sriov": {}} for name in lists["sriov"]]
    environment = {f"PCI_RESOURCE_X_IO_{name.upper()}": f"0000:{n:02x}:00.0" for n, name in enumerate(lists["generic"] + lists["gpu"], 1)}
    addresses = {name: f"0000:81:00.{number}" for number, name in enumerate(lists["sriov"])}
    spec = spec_of({"domain": {"memory": {"guest": "1Gi"}, "devices": {**devices, "interfaces": networks}}})
    vmi = VirtualMachineInstance(Metadata(name="case"), spec)
    root = ET.fromstring(render(vmi, environment, DomainSettings(networks=NetworkAddresses("file", addresses))))
    got = [alias.get("name", "").removeprefix("ua-") for alias in root.findall("devices/hostdev/alias")]
    same(got, [alias for alias in want if alias not in given["existing"]])


def _check_iommufd(offered: bool, want: Optional[str]) -> None:
    vmi = parse_manifest(manifest())
    found = ET.fromstring(render(vmi.instance(), {}, DomainSettings(iommufd=offered))).find("iommufd")
    if want is None or found is None:
        same(None if found is None else ET.tostring(found, "unicode"), want)
    else:
        _check(ET.tostring(found, "unicode"), want)


def _element(given: dict[str, Any]) -> Any:
    if set(given) == {"hostdev"}:
        return _hostdev(given["hostdev"])
    if set(given) == {"controller"}:
        return _controller(given["controller"])
    return None


def _hostdev(given: dict[str, Any]) -> Any:
    odd = set(given.get("driver", {})) - {"iommufd"} | set(given.get("acpi", {})) - {"nodeset"}
    if given["type"] not in _SOURCES or set(given) - _HOSTDEV or odd:
        return None
    return hostdev_element(
        Hostdev(
            alias=given["alias"],
            source=_SOURCES[given["type"]](given["source"]),
            guest=_place(given.get("address")),
            boot_order=given.get("boot_order"),
            display=given.get("display") == "on",
            ramfb=given.get("ramfb") == "on",
            iommufd=given.get("driver", {}).get("iommufd") == "yes",
            nodeset=given.get("acpi", {}).get("nodeset", ""),
            model=given.get("model", "vfio-pci"),
        )
    )


def _controller(given: dict[str, Any]) -> Any:
    hole, target = given.get("pcihole64", {}), given.get("target", {})
    if given["type"] != "pci" or set(given) - _CONTROLLER or hole.get("unit", "KiB") != "KiB":
        return None
    place = _place(given.get("address"))
    return controller_element(
        Controller(int(given["index"]), given["model"], hole.get("value"), place, target.get("busNr"), target.get("node"))
    )


def _place(given: Optional[Mapping[str, str]]) -> Optional[GuestPlace]:
    return GuestPlace(address_of(given), given.get("multifunction") == "on") if given else None


def _check(got: str, want: str) -> None:
    same(_normal(ET.fromstring(got)), _normal(ET.fromstring(want)))


def _normal(element: ET.Element) -> Any:
    # libvirt reads 2 and 0x02 alike
    numbers = _NUMBERS if element.tag == "address" else ()
    attributes = {key: int(value, 0) if key in numbers else value for key, value in element.attrib.items()}
    children = sorted((_normal(child) for child in element), key=repr)
    return [element.tag, sorted(attributes.items()), (element.text or "").strip(), children]

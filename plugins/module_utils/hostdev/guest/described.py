"""What the launcher itself needs to know of a domain's XML: its name, its serial files, its host devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Tuple

from ..device.faults import Absent, Fault

try:
    from lxml import etree
except ImportError:
    etree = None  # type: ignore[assignment]

_ADDRESS = ("domain", "bus", "slot", "function")


@dataclass(frozen=True)
class Described:
    """A domain's name, the paths of its serial devices of type file, and (device name, host address) of its host devices."""

    name: str
    serial_files: Tuple[str, ...]
    devices: Tuple[Tuple[str, str], ...]


def describe(xml: str) -> Described:
    """Return what the launcher needs of a domain's XML; Fault when it is no XML."""
    if etree is None:
        raise Absent(what="read a domain's XML", subject="the Python library lxml", cause="not installed", hint="install python3-lxml")
    try:
        domain = etree.fromstring(xml.encode())
    except etree.XMLSyntaxError as error:
        raise Fault(what="read the domain's XML", subject="the rendered domain", cause=str(error)) from error
    serial = tuple(source.get("path", "") for source in domain.findall("devices/serial[@type='file']/source"))
    devices = tuple(_device(node) for node in domain.findall("devices/hostdev"))
    return Described(domain.findtext("name", ""), serial, devices)


def _device(node: Any) -> tuple[str, str]:
    alias = node.find("alias")
    address = node.find("source/address")
    name = alias.get("name", "") if alias is not None else ""
    return name.removeprefix("ua-"), _said(node.get("type", ""), address.attrib if address is not None else {})


def _said(kind: str, address: Mapping[str, str]) -> str:
    if kind == "mdev":
        return address.get("uuid", "")
    if kind == "usb":
        return f"{address.get('bus', '')}:{address.get('device', '')}"
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(address.get(part, "0"), 16) for part in _ADDRESS))

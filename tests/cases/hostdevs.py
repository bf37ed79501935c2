"""Shapes that the case files of the launcher share: hostdevs as dicts, and texts that stand for UUIDs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address

_STANDS_FOR_UUID = re.compile(r"(?<![\w-])(u|[0-9]{9,10})-[0-9](?![\w-])")


def address_of(given: Mapping[str, str]) -> Address:
    """Return a PCI address from its coordinates: 0x and hexadecimal digits, else decimal ones."""
    return Address(*(int(given[key], 0) for key in ("domain", "bus", "slot", "function")))


def hostdev_dict(element: Any) -> dict[str, Any]:
    """Return a <hostdev> as the case files write it; an absent field is an absent attribute or element."""
    source, alias = element.find("source/address"), element.find("alias")
    made = {**element.attrib, "alias": alias.get("name").removeprefix("ua-"), "source": dict(source.attrib)}
    boot, guest = element.find("boot"), element.find("address")
    if boot is not None:
        made["boot_order"] = int(boot.get("order"))
    if guest is not None:
        made["address"] = dict(guest.attrib)
    return made


def lower_source(hostdev: dict[str, Any]) -> dict[str, Any]:
    """Return it with its source's digits in lower case, as ours are."""
    return {**hostdev, "source": {key: value.lower() for key, value in hostdev["source"].items()}}


def with_uuids(value: Any) -> Any:
    """Return the value with real UUIDs, the same for the same text, where texts such as u-1 and 123456789-1 stand for them."""
    if isinstance(value, dict):
        return {key: with_uuids(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_uuids(item) for item in value]
    return _STANDS_FOR_UUID.sub(lambda found: str(uuid5(NAMESPACE_OID, found[0])), value) if isinstance(value, str) else value

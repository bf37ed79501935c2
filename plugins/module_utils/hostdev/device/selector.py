"""Selectors: which PCI functions a declaration means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Optional, Protocol

from .address import Address
from .faults import Refused
from .mdev import type_key
from .pci import Function

_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})")
_NODE = re.compile(r"[0-9]{1,4}")
_CLASS = re.compile(r"[0-9a-f]{2}|[0-9a-f]{4}|[0-9a-f]{6}")


class Facts(Protocol):
    """What some selector keys need beside the function itself; asked only when a key needs it."""

    def slot_of(self, address: Address) -> str:
        """Return the firmware's name of the slot (/sys/bus/pci/slots), empty when it has none."""

    def serial_of(self, function: Function) -> str:
        """Return the device serial number as lspci prints it, or the recorded NVMe serial; empty when it has none."""

    def native_driver_of(self, function: Function) -> str:
        """Return the driver recorded before binding, else the bound host driver, else what the modalias would load."""

    def vgpu_types_of(self, function: Function) -> tuple[str, ...]:
        """Return the number and, where it is told, the name of a virtual function's vGPU profile; none without a profile."""


@dataclass(frozen=True)
class Selector:
    """One map of keys, all of which a function has to match.

    id: "10de:2684", lower case. class_code: two, four or six hex digits, compared from the left.
    driver: the native driver, never the VFIO one. vgpu_type: number or name of the profile of an NVIDIA virtual function.
    """

    id: str = ""
    address: Optional[Address] = None
    class_code: str = ""
    slot: str = ""
    serial: str = ""
    numa_node: Optional[int] = None
    driver: str = ""
    vgpu_type: str = ""

    def may_match(self, address: str, id_text: str, class_code: str) -> bool:
        """Return False when these three cheap facts already rule the function out."""
        return (
            (not self.id or self.id == id_text)
            and class_code.startswith(self.class_code)
            and (self.address is None or str(self.address) == address)
        )

    def matches(self, function: Function, facts: Facts) -> bool:
        """Return whether all given keys match the function."""
        return (
            self.may_match(str(function.address), function.id, function.class_code)
            and (self.numa_node is None or self.numa_node == function.numa_node)
            and (not self.slot or self.slot == facts.slot_of(function.address))
            and (not self.serial or self.serial.lower() == facts.serial_of(function).lower())
            and (not self.driver or self.driver == facts.native_driver_of(function))
            and (not self.vgpu_type or type_key(self.vgpu_type) in map(type_key, facts.vgpu_types_of(function)))
        )

    def __str__(self) -> str:
        """Return "id 10de:2684, address 0000:65:00.0" for messages."""
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return ", ".join(f"{'class' if name == 'class_code' else name} {value}" for name, value in given if value not in ("", None))


def refuse(position: str, value: object, cause: str, hint: str = "") -> Refused:
    """Return the Refused of a declaration error, with its position and value."""
    return Refused(what="accept the declaration", subject=f"{position}: {value!r}", cause=cause, hint=hint)


def parse_id(value: object, position: str) -> str:
    """Return vendor:device in lower case; white space around and one 0x on each side are dropped.

    KubeVirt has two readers of pciVendorSelector that disagree (device manager, Grace checks); wildcards are refused
    because its discovery never honoured them.
    """
    text = text_of(value, position)
    sides = [side.strip().lower() for side in text.split(":")]
    plain = ":".join(side.removeprefix("0x") for side in sides)
    if not _ID.fullmatch(plain):
        raise refuse(
            position, text, "not VENDOR:DEVICE of four hexadecimal digits each", "write it as lspci -n prints it, for example 10de:2684"
        )
    return plain


def text_of(value: object, position: str) -> str:
    """Return text; Refused for anything else, since YAML reads 0000:01:00.0 or 0300 without quotes as numbers."""
    if not isinstance(value, str) or not value.strip():
        raise refuse(position, value, f"text is needed here, not {type(value).__name__}", "put it in quotes")
    return value.strip()


def parse_selector(value: object, position: str) -> Selector:
    """Return the selector of one map; Refused with the position of the first key that is unknown or wrong."""
    if not isinstance(value, Mapping) or not value:
        raise refuse(position, value, "a map with at least one key is needed", 'for example {id: "10de:2684"}')
    found: dict[str, Any] = {}
    for key, given in value.items():
        place = f"{position}.{key}"
        reader = _KEYS.get(str(key))
        if reader is None:
            raise refuse(place, given, f"unknown key; known are {', '.join(_KEYS)}")
        name, read = reader
        found[name] = read(given, place)
    return Selector(**found)


def _parse_address(value: object, position: str) -> Address:
    try:
        return Address.parse(text_of(value, position).lower())
    except Refused as fault:
        raise refuse(position, value, fault.cause, fault.hint) from fault


def _parse_class(value: object, position: str) -> str:
    text = text_of(value, position).lower()
    plain = text.removeprefix("0x")
    if not _CLASS.fullmatch(plain):
        raise refuse(position, value, "not two, four or six hexadecimal digits", 'for example "0300", in quotes')
    return plain


def _parse_node(value: object, position: str) -> int:
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not _NODE.fullmatch(text):
        raise refuse(position, value, "not the number of a NUMA node (0 or more)")
    return int(text)


def _parse_vgpu(value: object, position: str) -> str:
    # the kernel's own word for a profile is a number
    return text_of(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, position)


_KEYS = {
    "id": ("id", parse_id),
    "address": ("address", _parse_address),
    "class": ("class_code", _parse_class),
    "slot": ("slot", text_of),
    "serial": ("serial", text_of),
    "numa_node": ("numa_node", _parse_node),
    "driver": ("driver", text_of),
    "vgpu_type": ("vgpu_type", _parse_vgpu),
}

"""USB devices as frozen values, selectors of them, and the bundles that Kubernetes may hand out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .selector import refuse, text_of

_HEX = re.compile(r"[0-9a-f]{1,4}")
_PORT = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")


@dataclass(frozen=True)
class UsbDevice:
    """One plugged USB device (drivers/usb/core/sysfs.c).

    port: its name on the bus, "1-4.2", which is where it is plugged in. vendor, product: numbers. bus, device: the
    numbers under which the kernel knows it now; device is another one after each plugging. serial: empty without one.
    """

    port: str
    vendor: int
    product: int
    bus: int
    device: int
    node: str
    serial: str = ""

    @property
    def value(self) -> str:
        """Return "BUS:DEVICE" in decimal, as KubeVirt's launcher reads it (contract C4)."""
        return f"{self.bus}:{self.device}"

    @property
    def id(self) -> str:
        """Return "46f4:0001"."""
        return f"{self.vendor:04x}:{self.product:04x}"

    @property
    def label(self) -> str:
        """Return what stays the same when it is plugged in again: "1-4.2", or "1-4.2:SERIAL"."""
        return f"{self.port}:{self.serial}" if self.serial else self.port

    def is_again(self, other: UsbDevice) -> bool:
        """Return whether this is the other device as far as can be told: the same kind with the same serial at the same port."""
        return self.port == other.port and self.is_alike(other)

    def is_alike(self, other: UsbDevice) -> bool:
        """Return whether this may be the other device, wherever it is plugged in: the same kind with the same serial."""
        return (self.vendor, self.product, self.serial) == (other.vendor, other.product, other.serial)


@dataclass(frozen=True)
class UsbSelector:
    """Which USB devices are meant; all given keys have to match."""

    vendor: Optional[int] = None
    product: Optional[int] = None
    serial: str = ""
    port: str = ""

    def matches(self, device: UsbDevice) -> bool:
        """Return whether all given keys match the device."""
        return (
            self.vendor in (None, device.vendor)
            and self.product in (None, device.product)
            and self.serial in ("", device.serial)
            and self.port in ("", device.port)
        )

    def __str__(self) -> str:
        """Return "usb vendor 46f4, product 0001" for messages."""
        given = [
            ("vendor", None if self.vendor is None else f"{self.vendor:04x}"),
            ("product", None if self.product is None else f"{self.product:04x}"),
            ("serial", self.serial),
            ("port", self.port),
        ]
        return "usb " + ", ".join(f"{name} {value}" for name, value in given if value)


Bundle = tuple[UsbSelector, ...]


def parse_usb(value: object, position: str) -> UsbSelector:
    """Return the selector of a map {vendor, product, serial, port}; Refused with the position of what is wrong."""
    if not isinstance(value, Mapping) or not value:
        raise refuse(position, value, "a map with at least one key is needed", 'for example {vendor: "0529", product: "0001"}')
    found: dict[str, Any] = {}
    for key, given in value.items():
        read = _KEYS.get(str(key))
        if read is None:
            raise refuse(f"{position}.{key}", given, f"unknown key; known are {', '.join(_KEYS)}")
        found[str(key)] = read(given, f"{position}.{key}")
    return UsbSelector(**found)


def gather(bundle: Bundle, plugged: Sequence[UsbDevice]) -> list[tuple[UsbDevice, ...]]:
    """Return as many bundles of different devices as there are, each with one device per selector in the selectors' order.

    plugged: the devices that are still free, in the order in which they are to be taken.
    """
    free = list(plugged)
    made: list[tuple[UsbDevice, ...]] = []
    while bundle:
        taken: list[UsbDevice] = []
        for selector in bundle:
            found = next((one for one in free if one not in taken and selector.matches(one)), None)
            if found is None:
                return made
            taken.append(found)
        made.append(tuple(taken))
        free = [one for one in free if one not in taken]
    return made


def _parse_number(value: object, position: str) -> int:
    text = text_of(value, position).lower().removeprefix("0x")
    if not _HEX.fullmatch(text):
        raise refuse(position, value, "not one to four hexadecimal digits", "write it as lsusb prints it, in quotes")
    return int(text, 16)


def _parse_port(value: object, position: str) -> str:
    text = text_of(value, position)
    if not _PORT.fullmatch(text):
        raise refuse(position, value, "not BUS-PORT.PORT", 'write it as /sys/bus/usb/devices does, for example "1-4.2"')
    return text


_KEYS = {"vendor": _parse_number, "product": _parse_number, "serial": text_of, "port": _parse_port}

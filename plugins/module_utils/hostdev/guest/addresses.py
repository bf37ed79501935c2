"""Addresses of mediated and USB devices on the host; those of PCI functions are in device/address.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union
from uuid import UUID

from ..device.address import Address
from ..device.faults import Refused

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[0-9]{1,3}")
# the kernel's own limits: USB_MAXBUS (drivers/usb/core/hcd.c), and seven bits on the wire
_LAST_BUS, _LAST_DEVICE = 64, 127


@dataclass(frozen=True, order=True)
class MdevAddress:
    """The UUID of a mediated device, lower case with hyphens, as the kernel names its folder."""

    uuid: str

    @staticmethod
    def parse(text: str) -> MdevAddress:
        """Return the address; Refused for anything that is no UUID in its usual form (KubeVirt takes any text)."""
        if not _UUID.fullmatch(text):
            cause = "not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx (hexadecimal)"
            hint = "write it as /sys/bus/mdev/devices does"
            raise Refused(what="read a mediated device's UUID", subject=repr(text), cause=cause, hint=hint)
        return MdevAddress(str(UUID(text)))

    def __str__(self) -> str:
        """Return the UUID."""
        return self.uuid


@dataclass(frozen=True, order=True)
class UsbAddress:
    """Bus and device number of a USB device; the device number is another one after each plugging."""

    bus: int
    device: int

    @staticmethod
    def parse(text: str) -> UsbAddress:
        """Return the address of BUS:DEVICE in decimal; Refused for anything else (KubeVirt checks no more than one colon)."""
        parts = text.split(":")
        numbers = [int(part) for part in parts if _NUMBER.fullmatch(part)]
        if not len(parts) == len(numbers) == 2 or not (1 <= numbers[0] <= _LAST_BUS and 1 <= numbers[1] <= _LAST_DEVICE):
            cause = f"not of the form BUS:DEVICE (decimal, bus 1 to {_LAST_BUS}, device 1 to {_LAST_DEVICE})"
            raise Refused(what="read a USB address", subject=repr(text), cause=cause, hint="write it as lsusb counts, for example 1:4")
        return UsbAddress(*numbers)

    def __str__(self) -> str:
        """Return BUS:DEVICE."""
        return f"{self.bus}:{self.device}"


HostAddress = Union[Address, MdevAddress, UsbAddress]

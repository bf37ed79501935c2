"""Facts about a function that selectors may ask for and that its sysfs folder does not tell directly."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..device.address import Address
from ..device.pci import Function
from ..root import Root, entries, read_text
from .pci import DEVICES

_SERIAL_CAPABILITY = 0x0003
_EXTENDED_SPACE = 0x100


class MachineFacts:
    """Facts read from a machine, each when it is asked for.

    recorded: by address, the native driver and serial that were recorded before binding ({"driver": .., "serial": ..}).
    """

    def __init__(self, root: Root, recorded: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._root = root
        self._recorded = recorded or {}

    def slot_of(self, address: Address) -> str:
        """Return the name of the slot folder whose `address` is this slot (drivers/pci/slot.c), or empty text."""
        slots = self._root.sysfs("bus", "pci", "slots")
        return next((name for name in entries(slots) if read_text(slots / name / "address") == address.slot_text), "")

    def serial_of(self, address: Address) -> str:
        """Return the recorded serial, else the NVMe serial, else the device serial number capability, else empty text.

        The capability is printed as lspci does: eight bytes, highest first, joined by dashes.
        """
        known = self._recorded.get(str(address), {}).get("serial", "")
        return known or self._nvme_serial(address) or serial_number(self._config(address))

    def native_driver_of(self, function: Function) -> str:
        """Return the recorded driver, else a bound driver that is no VFIO driver, else what the modalias would load."""
        known = self._recorded.get(str(function.address), {}).get("driver", "")
        if known or (function.driver and not function.is_usable):
            return known or function.driver
        done = self._root.run(["modprobe", "--resolve-alias", function.modalias]) if function.modalias else None
        names = done.out.split() if done and done.code == 0 else []
        return next((name for name in names if "vfio" not in name), "")

    def _nvme_serial(self, address: Address) -> str:
        folder = self._root.at(DEVICES) / str(address) / "nvme"
        return next((read_text(folder / name / "serial") or "" for name in entries(folder)), "").strip()

    def _config(self, address: Address) -> bytes:
        try:
            return (self._root.at(DEVICES) / str(address) / "config").read_bytes()
        except OSError:
            return b""


def serial_number(config: bytes) -> str:
    """Return the device serial number in a function's configuration space, or empty text (PCIe base spec 7.9.3)."""
    offset = _EXTENDED_SPACE
    for _hop in range(64):
        if offset < _EXTENDED_SPACE or len(config) < offset + 12:
            return ""
        header, low, high = struct.unpack_from("<III", config, offset)
        if header & 0xFFFF == _SERIAL_CAPABILITY:
            return "-".join(f"{byte:02x}" for byte in struct.pack(">II", high, low))
        offset = header >> 20
    return ""

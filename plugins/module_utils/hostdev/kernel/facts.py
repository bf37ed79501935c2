"""Facts about a function that selectors may ask for and that its sysfs folder does not tell directly."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache

from ..device.address import Address
from ..device.pci import Function
from ..root import Root, entries, read_link_name, read_text
from .pci import DEVICES

Recorded = Mapping[str, Mapping[str, str]]

_SERIAL_CAPABILITY = 0x0003
_EXTENDED_SPACE = 0x100


class MachineFacts:
    """Facts read from a machine, each when it is asked for.

    recorded: gives, by address, id, native driver and serial as they were recorded before binding ({"id": .., "driver": ..,
    "serial": ..}); asked once, and only when a selector needs it.
    """

    def __init__(self, root: Root, recorded: Callable[[], Recorded]) -> None:
        self._root = root
        self._recorded = lru_cache(maxsize=None)(recorded)

    def slot_of(self, address: Address) -> str:
        """Return the name of the slot folder whose `address` is this slot (drivers/pci/slot.c), or empty text."""
        slots = self._root.sysfs("bus", "pci", "slots")
        return next((name for name in entries(slots) if read_text(slots / name / "address") == address.slot_text), "")

    def serial_of(self, function: Function) -> str:
        """Return the recorded serial, else the NVMe serial, else the device serial number capability, else empty text.

        The capability is printed as lspci does: eight bytes, highest first, joined by dashes.
        """
        known, address = self._known(function, "serial"), function.address
        return known or self._nvme_serial(address) or serial_number(self._config(address))

    def native_driver_of(self, function: Function) -> str:
        """Return the recorded driver, else a bound driver that is no VFIO driver, else what the modalias would load."""
        known = self._known(function, "driver")
        if known or (function.driver and not function.is_usable):
            return known or function.driver
        done = self._root.run(["modprobe", "--resolve-alias", function.modalias]) if function.modalias else None
        names = done.out.split() if done and done.code == 0 else []
        return next((name for name in names if "vfio" not in name), "")

    def vgpu_types_of(self, function: Function) -> tuple[str, ...]:
        """Return the number of a virtual function's vGPU profile, and its name where the driver tells it.

        `creatable_vgpu_types` lists "number : name"; once a profile is set it may be empty, and the parent's or a
        sibling's list still tells (NVIDIA's vendor-specific VFIO framework).
        """
        if not function.holds_vgpu:
            return ()
        number = function.vgpu_type.strip()
        siblings = [function.address, *self._virtual_functions(function)]
        names = (name for address in siblings for known, name in self._profiles(address) if known == number)
        name = next(names, "")
        return (number, name) if name else (number,)

    def _virtual_functions(self, function: Function) -> list[Address]:
        if function.physfn is None:
            return []
        parent = self._root.at(DEVICES) / str(function.physfn)
        links = [read_link_name(parent / name) for name in entries(parent) if name.startswith("virtfn")]
        return [one for link in links if link and (one := Address.find(link))]

    def _profiles(self, address: Address) -> list[tuple[str, str]]:
        text = read_text(self._root.at(DEVICES) / str(address) / "nvidia" / "creatable_vgpu_types") or ""
        pairs = (line.partition(":") for line in text.splitlines())
        return [(number.strip(), name.strip()) for number, mark, name in pairs if mark]

    def _known(self, function: Function, key: str) -> str:
        known = self._recorded().get(str(function.address), {})
        # what was recorded of another card at this address says nothing about this one
        return known.get(key, "") if known.get("id") == function.id else ""

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

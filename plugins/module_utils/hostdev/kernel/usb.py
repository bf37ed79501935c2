"""Reader of plugged USB devices from sysfs (drivers/usb/core/usb.c, usb_dev_uevent)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from ..device.usb import UsbDevice
from ..root import Root, entries, key_values, read_text

DEVICES = "/sys/bus/usb/devices"
# below /dev, and nowhere else
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)+")


def read_usb(root: Root) -> tuple[UsbDevice, ...]:
    """Return every plugged device but hubs of the root, in the order of their names as text; none without USB."""
    folder = root.at(DEVICES)
    return tuple(one for name in entries(folder) if not name.startswith("usb") and ":" not in name and (one := _read(folder / name)))


def _read(folder: Path) -> Optional[UsbDevice]:
    # interfaces have no ids of their own
    if not (folder / "idVendor").exists():
        return None
    told = key_values(read_text(folder / "uevent") or "")
    node = told.get("DEVNAME", "")
    try:
        vendor, product, _release = (int(part, 16) for part in told["PRODUCT"].split("/"))
        bus, device = int(told["BUSNUM"], 10), int(told["DEVNUM"], 10)
    except (KeyError, ValueError):
        return None
    if not _NODE.fullmatch(node) or max(vendor, product) > 0xFFFF:
        return None
    return UsbDevice(folder.name, vendor, product, bus, device, f"/dev/{node}", read_text(folder / "serial") or "")

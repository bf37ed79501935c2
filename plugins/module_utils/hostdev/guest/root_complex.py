"""All PCI devices of a guest on its root complex: annotation kubevirt.io/placePCIDevicesOnRootComplex.

KubeVirt's walk and slots (pkg/virt-launcher/virtwrap/converter/pci-placement.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..device.address import Address
from ..device.faults import Refused
from .controllers import EXPANDER, ROOT
from .hostdev import GuestPlace, guest_address

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# 0 and 1 are the host bridge and the first display, 1b the sound of a PC, 1f what q35 has built in
SLOTS = tuple(slot for slot in range(0x02, 0x1F) if slot != 0x1B)
# in the order in which slots are given; what is on no PCI bus, or is not there at all, is left out
_WALK = (
    "interface",
    "hostdev[@type='pci']",
    f"controller[not(@model='none' or @model='pci-root' or @model='{ROOT}' or @model='{EXPANDER}')]",
    "disk[target/@bus='virtio']",
    "input[@bus='virtio']",
    "watchdog",
    "rng",
    "memballoon[not(@model='none')]",
)


def place_on_root_complex(devices: Element) -> None:
    """Give each device below <devices> that has no PCI address yet the next slot of bus 0; Refused when they do not suffice.

    Addresses of another type, and those that say a domain already, are left alone, and no slot is given twice (KubeVirt
    gives one that the manifest has given to an SR-IOV interface to another device too).
    """
    taken = {int(one.get("slot", "0"), 0) for one in devices.iterfind("*/address[@domain]") if int(one.get("bus", "0"), 0) == 0}
    free = (slot for slot in SLOTS if slot not in taken)
    for device in _placeable(devices):
        slot = next(free, None)
        if slot is None:
            cause = f"No space left on the root PCI bus, which has {len(SLOTS)} slots for devices"
            hint = "take the annotation kubevirt.io/placePCIDevicesOnRootComplex away, or some devices"
            raise Refused(what="place the PCI devices on the root complex", subject=str(device.tag), cause=cause, hint=hint)
        old = device.find("address")
        if old is not None:
            device.remove(old)
        device.append(guest_address(GuestPlace(Address(0, 0, slot, 0))))


def _placeable(devices: Element) -> Iterator[Element]:
    for path in _WALK:
        for device in cast("list[Element]", devices.xpath(path)):
            address = device.find("address")
            if address is None or (address.get("type", "pci") == "pci" and not address.get("domain")):
                yield device

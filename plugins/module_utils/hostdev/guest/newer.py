"""Elements that not every libvirt takes: refused by their name before the domain is handed over.

The versions are the oldest whose schema is known to take them (9.0, 11.3 and 12.9 were tried, KubeVirt asks 12.2 for
iommufd); libvirt itself passes over what it does not know, and the guest would be another one than described.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Tuple

from ..device.faults import Unsupported
from .elements import from_text

# XPath from <domain>, how people call it, the oldest version that is known to take it
_NEEDS: Sequence[Tuple[str, str, Tuple[int, int]]] = (
    ("devices/hostdev[@type='pci'][@display or @ramfb]", "display or ramfb of a PCI <hostdev>", (11, 3)),
    ("devices/hostdev/driver[@iommufd]", "attribute iommufd of a <hostdev>'s <driver>", (12, 2)),
    ("iommufd", "<iommufd>", (12, 2)),
    ("devices/hostdev/acpi[@nodeset]", "<acpi nodeset> of a <hostdev>", (12, 9)),
    ("devices/iommu[@model='smmuv3']/driver", "<driver> of an <iommu> of model smmuv3", (12, 9)),
)


def refuse_newer(xml: str, libvirt: Tuple[int, int, int]) -> None:
    """Raise Unsupported when the domain holds an element that this libvirt (major, minor, release) does not take."""
    domain = from_text(xml)
    for path, name, oldest in _NEEDS:
        if libvirt[:2] < oldest and domain.xpath(path):
            raise Unsupported(
                what="describe the guest to libvirt",
                subject=name,
                cause=f"needs libvirt {oldest[0]}.{oldest[1]} or newer, running is {'.'.join(map(str, libvirt))}",
                hint="use the launcher image of this collection, or leave out what the element is for",
            )


def version_of(number: int) -> Tuple[int, int, int]:
    """Return major, minor and release of libvirt's number (virConnect.getLibVersion: 12009000 is 12.9.0)."""
    return number // 1_000_000, number // 1000 % 1000, number % 1000

"""Whose IOMMU a machine has, and what that maker's needs: one row per maker. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """What a maker's IOMMU needs: the ACPI table the firmware gives, the key of its driver's argument, the word that switches it on.

    key and on are empty where there is none. firmware: what the setting is called in firmware set-ups.
    """

    table: str
    key: str
    on: str
    firmware: str


PLATFORMS: dict[str, Platform] = {
    "intel": Platform(
        "DMAR", "intel_iommu", "intel_iommu=on", 'look for "Intel VT-d" (on servers also "SR-IOV", "ACS", "Above 4G decoding")'
    ),
    "amd": Platform(
        "IVRS",
        "amd_iommu",
        "",
        'look for "IOMMU" or "AMD-Vi" ("SVM" is CPU virtualisation, not this; on servers also "SR-IOV", "ACS", "ARI")',
    ),
    "arm": Platform("IORT", "", "", 'look for "SMMU"; some boards have none for PCIe'),
}
_CPUS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd"}


def vendor_of(cpu: str, tables: Sequence[str]) -> str:
    """Return the row's name for /proc/cpuinfo's text and the names of ACPI tables, empty when neither tells.

    The firmware's table names the IOMMU even where the CPU is another maker's: QEMU gives AMD machines an Intel IOMMU.
    """
    named = [vendor for vendor, platform in PLATFORMS.items() if platform.table in tables]
    if len(named) == 1:
        return named[0]
    found = re.search(r"^vendor_id\s*:\s*(\S+)", cpu, re.MULTILINE)
    if found:
        return _CPUS.get(found[1], "")
    return "arm" if "CPU implementer" in cpu else ""

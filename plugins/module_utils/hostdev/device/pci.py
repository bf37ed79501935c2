"""PCI functions and IOMMU groups as frozen values, and the rules that need nothing but them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from .address import Address

VFIO_PCI = "vfio-pci"
_AUDIO = "0403"
_DISPLAY = "03"
_HOST_BRIDGES = ("0600", "0604")


@dataclass(frozen=True)
class Function:
    """One PCI function as sysfs shows it (Documentation/ABI/testing/sysfs-bus-pci).

    vendor, device: four lower-case hex digits. class_code: six. subsystem: "vvvv:dddd" or empty.
    driver: name of the bound driver, empty when none. override: driver_override, empty when unset.
    iommu_group: the group's number as text, empty when the IOMMU does not cover the function.
    numa_node: None when the kernel does not know (it says -1, nothing, or no number).
    vfio_nodes: the names below vfio-dev, None when the driver registered no VFIO device.
    sriov_total: content of sriov_totalvfs, which may be 0; None when this is no physical function.
    vgpu_type: content of nvidia/current_vgpu_type, empty when there is none.
    """

    address: Address
    vendor: str
    device: str
    class_code: str
    subsystem: str = ""
    driver: str = ""
    override: str = ""
    iommu_group: str = ""
    numa_node: int | None = None
    boot_vga: bool = False
    modalias: str = ""
    physfn: Address | None = None
    sriov_total: Optional[int] = None
    sriov_active: int = 0
    vgpu_type: str = ""
    reset_methods: tuple[str, ...] = ()
    vfio_nodes: Optional[tuple[str, ...]] = None

    @property
    def id(self) -> str:
        """Return vendor and device as "10de:2684"."""
        return f"{self.vendor}:{self.device}"

    @property
    def is_bridge(self) -> bool:
        """Return whether this is a host or PCI-to-PCI bridge, which stays on its driver and never counts in a group.

        Other bridges (ISA 0601, NVSwitch 0680) are devices: VFIO wants them bound too (drivers/vfio/pci/vfio_pci_core.c).
        """
        return self.class_code[:4] in _HOST_BRIDGES

    @property
    def is_display(self) -> bool:
        """Return whether this is a display controller (base class 03)."""
        return self.class_code.startswith(_DISPLAY)

    @property
    def is_physical_function(self) -> bool:
        """Return whether this function can make virtual functions."""
        return self.sriov_total is not None

    @property
    def holds_vgpu(self) -> bool:
        """Return whether this is an NVIDIA virtual function with a vGPU profile, which stays on its vendor driver.

        KubeVirt 1.9 accepts it the same way (pkg/virt-handler/device-manager/nvidia.go).
        """
        return self.driver == "nvidia" and not self.is_physical_function and self.vgpu_type not in ("", "0")

    @property
    def is_usable(self) -> bool:
        """Return whether a guest can be given this function as it is bound now."""
        return self.driver == VFIO_PCI or self.holds_vgpu or (self.vfio_nodes is not None and bool(self.driver))

    @property
    def blocks_group(self) -> bool:
        """Return whether this member keeps its group from being opened: an endpoint on a driver of the host.

        Members without driver or on pci-stub do not (drivers/vfio/group.c, iommu_group_claim_dma_owner).
        """
        return not self.is_bridge and self.driver not in ("", "pci-stub") and not self.is_usable

    def is_companion_of(self, target: Function) -> bool:
        """Return whether this is another function of the target's slot with its vendor id, or an audio function."""
        same_slot = self.address.slot_text == target.address.slot_text and self.address != target.address
        return same_slot and target.may_have_companion(self.id, self.class_code) and not self.is_bridge

    def may_have_companion(self, id_text: str, class_code: str) -> bool:
        """Return whether ids and class of another function of this slot are those of a companion."""
        return id_text.startswith(f"{self.vendor}:") or class_code.startswith(_AUDIO)

    def label(self) -> str:
        """Return "0000:01:00.1 (10de:22ba, class 0403, driver snd_hda_intel)" for messages."""
        return f"{self.address} ({self.id}, class {self.class_code[:4]}, {'driver ' + self.driver if self.driver else 'no driver'})"


@dataclass(frozen=True)
class Group:
    """One IOMMU group: all functions whose `iommu_group` link names it, in address order."""

    number: str
    members: tuple[Function, ...] = field(default=())

    @property
    def endpoints(self) -> tuple[Function, ...]:
        """Return the members that VFIO counts: all but host and PCI-to-PCI bridges."""
        return tuple(member for member in self.members if not member.is_bridge)

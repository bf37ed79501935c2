"""What a domain's XML needs to know beside the manifest: how the launcher runs it and where its files are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from ..vmi import mounts
from .sriov import NetworkAddresses
from .topology import HostCpus


@dataclass(frozen=True)
class DomainSettings:
    """Where a domain runs.

    emulation: no KVM (domain type qemu). work_dir: the launcher's own folder, for the serial line and UEFI variables.
    kernel_dir, container_disks, disks: where the pod has them (vmi/mounts.py). efi_*: the firmware of Debian's package ovmf.
    host: CPUs and NUMA nodes, for guests with dedicated CPUs. by_numa: place PCI devices by NUMA node (KubeVirt's gate
    PCINUMAAwareTopology). networks: the virtual functions of SR-IOV interfaces, None where nobody knows them. iommufd: the
    node offers /dev/iommu and the launcher holds it. screen: the domain has <graphics>, which devices that show need.
    """

    emulation: bool = False
    host: HostCpus = field(default_factory=HostCpus)
    by_numa: bool = False
    networks: Optional[NetworkAddresses] = None
    iommufd: bool = False
    screen: bool = False
    work_dir: str = "/var/run/vfio-passthrough"
    kernel_dir: str = mounts.KERNEL_BOOT
    container_disks: str = mounts.CONTAINER_DISKS
    disks: str = mounts.DISKS
    efi_code: str = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    efi_vars: str = "/usr/share/OVMF/OVMF_VARS_4M.fd"
    efi_secure_code: str = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
    efi_secure_vars: str = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"

    @property
    def serial(self) -> str:
        """Return where the guest's serial line is written; the launcher makes it a FIFO and copies it to its stdout."""
        return f"{self.work_dir}/serial0"

    @property
    def serial_socket(self) -> str:
        """Return the socket of the serial line when the manifest does not want it in the log."""
        return f"{self.work_dir}/serial0.sock"

    @property
    def nvram(self) -> str:
        """Return where libvirt keeps this guest's UEFI variables."""
        return f"{self.work_dir}/nvram.fd"

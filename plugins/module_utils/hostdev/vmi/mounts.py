"""Where the pod shows the launcher what the VM is made of: agreed by pod rendering and domain rendering."""

from __future__ import annotations

KERNEL_BOOT = "/var/run/vfio-passthrough/kernel-boot"
"""The image volume of firmware.kernelBoot.container, read-only."""

CONTAINER_DISKS = "/var/run/vfio-passthrough/container-disks"
"""Below it, by the volume's name, the image volume of each containerDisk, read-only."""

DISKS = "/var/run/vfio-passthrough/disks"
"""An emptyDir where the launcher makes empty disks and the writable layers of container disks."""


def container_disk_folder(volume: str) -> str:
    """Return where the image of a containerDisk is mounted in the pod."""
    return f"{CONTAINER_DISKS}/{volume}"

"""Where the pod shows the launcher what the VM is made of: agreed by pod rendering and domain rendering."""

from __future__ import annotations

KERNEL_BOOT = "/var/run/vfio-passthrough/kernel-boot"
"""The image volume of firmware.kernelBoot.container, read-only."""

CONTAINER_DISKS = "/var/run/vfio-passthrough/container-disks"
"""Below it, by the volume's name, the image volume of each containerDisk, read-only."""

DISKS = "/var/run/vfio-passthrough/disks"
"""An emptyDir where the launcher makes empty disks and the writable layers of container disks."""

POD_INFO = "/etc/podinfo"
"""The downward API's volume, there with any SR-IOV interface. In it, each empty until somebody writes its annotation:"""

NETWORK_STATUS = "network-status"
"""What Multus says about the pod's networks."""

NETWORK_INFO = "network-info"
"""The same in KubeVirt's form, where KubeVirt writes it."""

CLAIMS = "/var/run/vfio-passthrough/claims"
"""Below it, by the volume's name, each PersistentVolumeClaim that is a file system; the guest's disk is disk.img in it."""

BLOCKS = "/dev/vfio-passthrough"
"""Below it, by the volume's name, each PersistentVolumeClaim that is a block device."""

HOST_DISKS = "/var/run/vfio-passthrough/host-disks"
"""Below it, by the volume's name, the folder of each hostDisk's file."""

OBJECTS = "/var/run/vfio-passthrough/objects"
"""Below it, by the volume's name, the keys of a ConfigMap or Secret; of cloud-init by NAME-userdata and NAME-networkdata."""

HUGEPAGES = "/dev/hugepages"
"""The pod's huge pages, there with memory.hugepages."""


def container_disk_folder(volume: str) -> str:
    """Return where the image of a containerDisk is mounted in the pod."""
    return f"{CONTAINER_DISKS}/{volume}"

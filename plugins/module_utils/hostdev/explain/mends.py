"""What to do about a unit that is unhealthy: the mend by its reason's code and, where kinds differ, by its kind."""

from __future__ import annotations

from ..device.declaration import IOMMUFD, MDEV, NODE, PCI, USB
from ..device.inventory import COMPANION_NOT_BOUND, GROUP_NOT_VIABLE
from ..device.offer import GONE, NO_DEVICE_NODE, NO_GRANT
from ..kube.elsewhere import HELD_ELSEWHERE

_VFIO = "VFIO makes the node with the group's first device: look at `dmesg | grep vfio` on the node"
_COMPANIONS = "run site.yml: companions move with the device"
_MODULE = "load the kernel module that makes it (kvm_intel or kvm_amd, tun, vhost_net, vhost_vsock, iommufd)"
_ELSEWHERE = "end the pod that got it under the former name: `hostdev holders` on the node lists who holds what"
_MENDS: dict[tuple[str, str], str] = {
    (GROUP_NOT_VIABLE, ""): _COMPANIONS,
    (COMPANION_NOT_BOUND, ""): _COMPANIONS,
    (HELD_ELSEWHERE, ""): _ELSEWHERE,
    (NO_GRANT, ""): "the device plugin could not make the unit's grant folder: look at its journal",
    (NO_DEVICE_NODE, PCI): _VFIO,
    (NO_DEVICE_NODE, MDEV): _VFIO,
    (NO_DEVICE_NODE, USB): "plug it out and in again; udev makes the node",
    (NO_DEVICE_NODE, NODE): _MODULE,
    (NO_DEVICE_NODE, IOMMUFD): _MODULE,
    (GONE, PCI): "plug it in or bind it again (run site.yml), or take it out of the declaration",
    (GONE, MDEV): "make it again, or take it out of the declaration",
    (GONE, USB): "plug it in again at the same port, or take it out of the declaration",
    (GONE, NODE): "nothing, once the pods that hold it have ended",
}


def mend(code: str, kind: str) -> str:
    """Return the mend, empty where there is none to give."""
    return _MENDS.get((code, kind)) or _MENDS.get((code, ""), "")

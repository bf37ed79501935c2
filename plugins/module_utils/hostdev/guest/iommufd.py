"""The launcher's side of the hand-over of /dev/iommu: an open descriptor from a socket (contract C9, KubeVirt's iommufd.go)."""

from __future__ import annotations

import os
import socket
from typing import Optional

from ..device.faults import Fault
from ..device.handover import IN_CONTAINER
from ..root import Root

GROUP = "iommu"
"""The name under which libvirt knows the descriptor: fdgroup of <iommufd>."""
_SECONDS = 30.0
_LONGEST = 32
_HINT = "look at the vfio-passthrough device plugin on this pod's node; a container that starts again is given another descriptor"


def take_iommufd(root: Root, path: str = IN_CONTAINER) -> Optional[int]:
    """Return an open descriptor of /dev/iommu, None where the pod has no such socket; Fault when nothing comes of it."""
    place = root.at(path)
    if not place.exists():
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_SECONDS)
            line.connect(str(place))
            _data, handles, _flags, _address = socket.recv_fds(line, _LONGEST, 1)
            if not handles:
                raise Fault(what="take over /dev/iommu", subject=path, cause="the service sent no descriptor", hint=_HINT)
            # what tells the service that it arrived
            line.sendall(b"\0")
    except OSError as error:
        raise Fault(what="take over /dev/iommu", subject=path, cause=str(error), hint=_HINT) from error
    os.set_inheritable(handles[0], False)
    return handles[0]

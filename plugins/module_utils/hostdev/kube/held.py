"""Which grant folders containers hold, from the kubelet's store of Allocate's answers.

The kubelet uses a stored answer again for every later start of a container, also after a restart of the machine, when
/run is empty and the device may be gone. podresources (KEP-606) tells devices but no mounts, and only while the kubelet runs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Optional

from .grant import Place
from .wire import device_plugin

try:
    from google.protobuf.message import DecodeError
except ImportError:
    DecodeError = ValueError  # type: ignore[assignment,misc]

CHECKPOINT = "kubelet_internal_checkpoint"


def held_places(plugin_folder: Path, grants: str) -> Optional[list[Place]]:
    """Return a place, not served, for every folder below grants that a stored answer mounts; None when there is no readable store.

    Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint, {"Data": {"PodDeviceEntries": [{"ResourceName", "AllocResp"}]}}
    with AllocResp a ContainerAllocateResponse in base64. Broken entries are passed over: the kubelet has no use for them either.
    """
    try:
        entries = json.loads((plugin_folder / CHECKPOINT).read_text(encoding="utf-8"))["Data"]["PodDeviceEntries"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    # null is how the kubelet writes an empty list
    return [place for entry in entries or () for place in _places(entry, grants)]


def _places(entry: Any, grants: str) -> Iterator[Place]:
    try:
        resource, answer = str(entry["ResourceName"]), base64.b64decode(entry["AllocResp"] or "")
        mounts = [mount.host_path for mount in device_plugin()["ContainerAllocateResponse"].FromString(answer).mounts]
    except (LookupError, TypeError, ValueError, DecodeError):
        return
    for path in _ours(mounts, grants):
        yield Place(resource, PurePosixPath(path).name, path, (), (), served=False)


def _ours(paths: Iterable[str], grants: str) -> Iterator[str]:
    for path in paths:
        plain = PurePosixPath(path)
        if str(plain) == path and str(plain.parent.parent) == grants and ".." not in plain.parts:
            yield path

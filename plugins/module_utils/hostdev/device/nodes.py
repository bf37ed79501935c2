"""Generic device nodes, of which a container gets the same one whatever unit it is given (KubeVirt's generic devices, C6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .selector import refuse, text_of

IOMMU = "/dev/iommu"
VFIO = "/dev/vfio/vfio"
MOST = 10_000
_PATH = re.compile(r"/dev(/[A-Za-z0-9][A-Za-z0-9._-]*)+")
# nodes that stand for devices of the other kinds: as a generic node one of them would go to several pods
_OTHERS = {"/dev/vfio": 'select: {id: "10de:2236"} or select: {mdev_type: ...}', "/dev/bus/usb/": "select: {usb: {...}}"}
_PERMISSIONS = re.compile(r"r?w?m?")


@dataclass(frozen=True)
class Node:
    """A device node that is offered `count` times. permissions: of the device cgroup, some of "rwm"."""

    path: str
    count: int = 1
    permissions: str = "rw"


def parse_node(given: Mapping[str, Any], position: str) -> Node:
    """Return the node of an entry's keys node, count and permissions; Refused with the position of what is wrong."""
    path = text_of(given["node"], f"{position}.node")
    if not _PATH.fullmatch(path):
        raise refuse(f"{position}.node", path, "not the path of a device node", "for example /dev/kvm")
    taken = next((folder for folder in _OTHERS if path.startswith(folder)), "")
    if taken:
        raise refuse(f"{position}.node", path, "it belongs to single devices, which are declared by what they are", f"use {_OTHERS[taken]}")
    count = given.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
        raise refuse(f"{position}.count", count, f"a number from 1 to {MOST} is needed")
    permissions = given.get("permissions", "mrw" if path == IOMMU else "rw")
    letters = "".join(letter for letter in "rwm" if letter in str(permissions))
    if not isinstance(permissions, str) or not letters or sorted(letters) != sorted(permissions) or not _PERMISSIONS.fullmatch(letters):
        raise refuse(f"{position}.permissions", permissions, "some of the letters r, w and m are needed, each once")
    return Node(path, count, permissions)

"""How much memory a launcher may lock, and raising its limit (the bound that keeps a grant from being a blank cheque)."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Optional

from ..device.faults import Fault, Refused
from ..root import Root, entries, key_values, read_text
from .peer import Peer

GIB = 1 << 30
_WHAT = "raise the memory-lock limit"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_UNLIMITED = 1 << 62  # cgroup v1 says "no limit" with the largest page-aligned number
_MOST = (1 << 63) - 1


def granted_units(mountinfo: str, folders: Collection[tuple[str, int]]) -> int:
    """Return how many of our grant folders a mount table holds.

    folders: (path, device number of its file system). A mount counts when it is that file system's folder of that very
    name at that very path: a process may mount what it likes in a namespace of its own, but not what it cannot reach.
    """
    seen = set()
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 5:
            major, _colon, minor = fields[2].partition(":")
            mounted, point = _plain(fields[3]), _plain(fields[4])
            number = os.makedev(int(major), int(minor))
            if (point, number) in folders and PurePosixPath(point).parts[-2:] == PurePosixPath(mounted).parts[-2:]:
                seen.add(point)
    return len(seen)


def bound(memory: int, units: int) -> int:
    """Return the most that may be locked: the memory once for each unit (libvirt's rule with a virtual IOMMU) and 1 GiB."""
    return memory * units + GIB


def memory_of(root: Root, cgroup_text: str) -> int:
    """Return the bytes of memory and huge pages that the cgroup of a process allows it; the machine's where none is set.

    cgroup_text: /proc/PID/cgroup. The lowest limit on the way up to the root holds.
    """
    machine = _machine(root)
    paths = dict(_controllers(cgroup_text))
    memory = _lowest(root, paths, "memory", ("memory.max", "memory.limit_in_bytes"))
    if memory is None:
        return machine
    pages = [_lowest(root, paths, "hugetlb", names) for names in _page_limits(root)]
    return min(memory + sum(one for one in pages if one is not None), machine)


def raise_limit(peer: Peer, wanted: int) -> int:
    """Set the peer's RLIMIT_MEMLOCK, soft and hard alike, never lower than they are; return what holds (2^63-1: no limit)."""
    try:
        peer.must_live()
        soft, hard = resource.prlimit(peer.pid, resource.RLIMIT_MEMLOCK)
        limit = max((wanted, soft, hard), key=_size)
        if (soft, hard) != (limit, limit):
            resource.prlimit(peer.pid, resource.RLIMIT_MEMLOCK, (limit, limit))
            soft, hard = resource.prlimit(peer.pid, resource.RLIMIT_MEMLOCK)
        peer.must_live()
    except (OSError, ValueError) as error:
        raise Fault(what=_WHAT, subject=f"{peer.label} to {wanted}", cause=str(error), hint="the service needs CAP_SYS_RESOURCE") from error
    if _size(soft) < wanted:
        raise Fault(what=_WHAT, subject=f"{peer.label} to {wanted}", cause=f"the limit reads {soft} afterwards")
    return min(_size(soft), _MOST)


def check_bound(root: Root, peer: Peer, wanted: int, folders: Collection[tuple[str, int]]) -> None:
    """Raise Refused when more is wanted than the peer's memory and its units justify."""
    units = granted_units(peer.read("mountinfo"), folders)
    memory = memory_of(root, peer.read("cgroup"))
    most = bound(memory, units)
    if wanted > most:
        raise Refused(
            what=_WHAT,
            subject=f"{peer.label} to {wanted}",
            cause=f"at most {most} bytes: its memory limit {memory} x {units} granted devices + 1 GiB",
            hint="raise the pod's memory limit, or ask for less",
        )


def _size(limit: int) -> int:
    return _MOST if limit == resource.RLIM_INFINITY else limit


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), text)


def _machine(root: Root) -> int:
    lines = (read_text(root.proc("meminfo")) or "").replace(":", "=")
    return int(key_values(lines)["MemTotal"].split()[0]) * 1024


def _controllers(text: str) -> Iterable[tuple[str, str]]:
    """Yield (controller, path) of /proc/PID/cgroup; version 2 has one line with no controller, kept as ""."""
    for line in text.splitlines():
        _number, names, path = line.split(":", 2)
        for name in names.split(","):
            yield name, path


def _page_limits(root: Root) -> list[tuple[str, str]]:
    """Return the file names of each huge page size's limit, in either version's spelling."""
    sizes = [int(name[len("hugepages-") : -len("kB")]) for name in entries(root.sysfs("kernel", "mm", "hugepages"))]
    words = [f"{size >> 20}GB" if size >= 1 << 20 else f"{size >> 10}MB" if size >= 1 << 10 else f"{size}KB" for size in sizes]
    return [(f"hugetlb.{word}.max", f"hugetlb.{word}.limit_in_bytes") for word in words]


def _lowest(root: Root, paths: dict[str, str], controller: str, names: tuple[str, str]) -> Optional[int]:
    first = controller in paths
    path = paths.get(controller, paths.get("", ""))
    # a reader in a container sees cgroups outside of its own as /../..: nothing can be read there
    if not path or path.startswith("/.."):
        return None
    home = root.sysfs("fs", "cgroup", controller) if first else root.sysfs("fs", "cgroup")
    place = home / path.lstrip("/")
    values = []
    for folder in (place, *place.parents):
        values.append(_number(folder / names[1 if first else 0]))
        if folder == home:
            break
    return min((value for value in values if value is not None), default=None)


def _number(path: Path) -> Optional[int]:
    text = read_text(path)
    if not text or not text.isdigit() or int(text) >= _UNLIMITED:
        return None
    return int(text)

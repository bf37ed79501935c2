"""How much memory a launcher may lock, and raising its limit (the bound that keeps a grant from being a blank cheque)."""

from __future__ import annotations

import logging
import resource
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Optional

from ..device.faults import Absent, Fault, Refused
from ..root import Root, entries, key_values, read_text
from .mounts import granted
from .peer import Peer

log = logging.getLogger(__name__)

GIB = 1 << 30
_WHAT = "raise the memory-lock limit"
_LINE = "Max locked memory"
_UNLIMITED = 1 << 62  # cgroup v1 says "no limit" with the largest page-aligned number
_MOST = (1 << 63) - 1


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
    """Set the peer's RLIMIT_MEMLOCK, soft and hard alike, never lower than they are; return what holds (2^63-1: no limit).

    Fault with the hard limit when the system refuses: only CAP_SYS_RESOURCE raises that.
    """
    soft, hard = limits(peer)
    limit = max((wanted, soft, hard), key=_size)
    if (soft, hard) != (limit, limit):
        _set(peer, limit, f"its hard limit is {_told(hard)}")
        soft, hard = limits(peer)
        if _size(soft) < wanted:
            raise Fault(what=_WHAT, subject=f"{peer.label} to {wanted}", cause=f"the limit reads {_told(soft)} afterwards")
    return min(_size(soft), _MOST)


def limits(peer: Peer) -> tuple[int, int]:
    """Return soft and hard RLIMIT_MEMLOCK in bytes as /proc/PID/limits tells them, RLIM_INFINITY for none; 0 when it does not."""
    lines = [line[len(_LINE) :].split() for line in peer.read("limits").split("\n") if line.startswith(_LINE)]
    soft, hard = lines[0][:2] if lines else ("0", "0")
    return _limit(soft), _limit(hard)


def _limit(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def _set(peer: Peer, limit: int, now: str) -> None:
    subject = f"{peer.label} to {limit}"
    try:
        peer.must_live()
        before = resource.prlimit(peer.pid, resource.RLIMIT_MEMLOCK, (limit, limit))
    except (OSError, ValueError) as error:
        raise Fault(what=_WHAT, subject=subject, cause=f"{error}; {now}", hint="the service needs CAP_SYS_RESOURCE") from error
    try:
        # prlimit takes a number: alive now means that it was the peer's own all the time
        peer.must_live()
    except Absent:
        take_back(peer.pid, limit, before)
        raise


def take_back(pid: int, limit: int, before: tuple[int, int]) -> None:
    """Undo what we set, where the number may have gone to another process between our look and our call."""
    try:
        if resource.prlimit(pid, resource.RLIMIT_MEMLOCK) == (limit, limit):
            resource.prlimit(pid, resource.RLIMIT_MEMLOCK, before)
    except (OSError, ValueError) as error:
        log.debug("nobody has the number %d now: %s", pid, error)


def check_bound(root: Root, peer: Peer, wanted: int, folders: Collection[tuple[str, int]]) -> None:
    """Raise Refused when more is wanted than the peer's memory and its units justify."""
    units = len(granted(peer.read("mountinfo"), folders))
    memory = memory_of(root, peer.cgroup)
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


def _told(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} bytes"


def _machine(root: Root) -> int:
    lines = (read_text(root.proc("meminfo")) or "").replace(":", "=")
    return int(key_values(lines)["MemTotal"].split()[0]) * 1024


def _controllers(text: str) -> Iterable[tuple[str, str]]:
    """Yield (controller, path) of /proc/PID/cgroup; version 2 has one line with no controller, kept as ""."""
    # not splitlines: a cgroup's name may hold whatever else Python takes for the end of a line
    for line in filter(None, text.split("\n")):
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
    if not path or path.split("/")[1:2] == [".."]:
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

"""Which block devices the machine needs: mounts, swap, and what is built upon disks (LVM, md, multipath, ZFS)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..device.faults import Fault
from ..root import Root, entries, read_link_name, read_text

# a host without these is no host: container runtimes, kubelet and etcd keep their state below /var
SYSTEM_PLACES = ("/boot", "/usr", "/var", "/etc")


@dataclass(frozen=True)
class Mount:
    """One mounted file system and the block devices under it, by name ("dm-0", "vda1")."""

    point: str
    source: str
    blocks: frozenset[str]

    @property
    def is_system(self) -> bool:
        """Return whether the machine itself lives on it."""
        return self.point == "/" or any(self.point == place or self.point.startswith(f"{place}/") for place in SYSTEM_PLACES)

    def __str__(self) -> str:
        return f"{self.source} mounted on {self.point}"


@dataclass(frozen=True)
class Storage:
    """What of the machine's storage is in use. swaps and pools: (name for messages, block devices under it)."""

    mounts: tuple[Mount, ...] = ()
    swaps: tuple[tuple[str, frozenset[str]], ...] = ()
    pools: tuple[tuple[str, frozenset[str]], ...] = ()


def read_storage(root: Root) -> Storage:
    """Return mounts (/proc/self/mountinfo), swap (/proc/swaps) and ZFS pools with the block devices that they stand on."""
    mounts = tuple(mount for line in (read_text(root.proc("self", "mountinfo")) or "").splitlines() for mount in _mount(root, line))
    sources = [line.split()[0] for line in (read_text(root.proc("swaps")) or "").splitlines()[1:] if line.strip()]
    swaps = tuple((source, stack(root, [_name(root, source)])) for source in sources if source.startswith("/dev/"))
    return Storage(mounts, swaps, _pools(root))


def stack(root: Root, names: Iterable[str]) -> frozenset[str]:
    """Return the block devices under some, themselves included, by walking /sys/class/block/NAME/slaves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += entries(root.sysfs("class", "block", name, "slaves"))
    return frozenset(found)


def holders(root: Root, name: str) -> tuple[str, ...]:
    """Return what is built upon a block device, as "dm-0 (vg-root)" (/sys/class/block/NAME/holders)."""
    names = entries(root.sysfs("class", "block", name, "holders"))
    titles = [(one, read_text(root.sysfs("class", "block", one, "dm", "name"))) for one in names]
    return tuple(f"{one} ({title})" if title else one for one, title in titles)


def _mount(root: Root, line: str) -> Iterable[Mount]:
    # proc(5): id parent major:minor root point options [fields] - type source options
    before, _dash, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 2:
        return
    source = _plain(right[1])
    name = read_link_name(root.sysfs("dev", "block", left[2])) or (_name(root, source) if source.startswith("/dev/") else "")
    if name:
        names = _btrfs(root, name) if right[0] == "btrfs" else [name]
        yield Mount(_plain(left[4]), source, stack(root, names))


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _name(root: Root, source: str) -> str:
    return os.path.basename(os.path.realpath(root.at(source)))


def _btrfs(root: Root, name: str) -> list[str]:
    # one file system on several disks shows only one of them as its source
    home = root.sysfs("fs", "btrfs")
    for uuid in entries(home):
        members = entries(home / uuid / "devices")
        if name in members:
            return members
    return [name]


def _pools(root: Root) -> tuple[tuple[str, frozenset[str]], ...]:
    if not root.proc("spl", "kstat", "zfs").exists():
        return ()
    try:
        done = root.run(["zpool", "status", "-LP"], timeout=60)
    except Fault:
        return ()
    names = re.findall(r"^\s+/dev/(\S+)", done.out, re.MULTILINE)
    return tuple((f"ZFS member {name}", stack(root, [os.path.basename(name)])) for name in names)

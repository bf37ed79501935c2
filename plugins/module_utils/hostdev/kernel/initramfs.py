"""The initramfs: which tool makes it, what is in the images, and how they are made anew. One row per tool."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from ..device.faults import Fault
from ..root import Root, entries, read_text, write_file

CACHE = "/run/vfio-passthrough/initramfs.json"


@dataclass(frozen=True)
class Tool:
    """One initramfs generator. marker: the file whose presence means it; script: where an early script of ours goes."""

    name: str
    marker: str
    script: str
    listing: tuple[str, ...]
    regenerate: tuple[str, ...]


# other generators join as rows
TOOLS: tuple[Tool, ...] = (
    Tool(
        name="initramfs-tools",
        marker="/usr/sbin/update-initramfs",
        script="/etc/initramfs-tools/scripts/init-top/00-vfio-passthrough",
        listing=("lsinitramfs",),
        regenerate=("update-initramfs", "-u", "-k", "all"),
    ),
)


@dataclass(frozen=True)
class Image:
    """One image: its path, its time stamp (seconds), the paths inside it."""

    path: str
    made: float
    names: frozenset[str]

    @property
    def modules(self) -> frozenset[str]:
        """Return the names of the kernel modules inside, with underscores."""
        return frozenset(os.path.basename(name).split(".ko")[0].replace("-", "_") for name in self.names if ".ko" in os.path.basename(name))

    def has(self, path: str) -> bool:
        """Return whether a file is inside; init-top scripts and rules lose their /etc/initramfs-tools or keep their /etc."""
        tail = path.rpartition("/")[2]
        return any(name.rpartition("/")[2] == tail for name in self.names)


def find_tool(root: Root) -> Optional[Tool]:
    """Return the generator of this machine, None when there is none that we know."""
    return next((tool for tool in TOOLS if root.at(tool.marker).exists()), None)


def read_images(root: Root, tool: Tool) -> tuple[Image, ...]:
    """Return the images of the installed kernels with their listings; a listing is kept in /run until its image changes."""
    kept = _kept(root)
    images = []
    for name in entries(root.at("/boot")):
        if not name.startswith("initrd.img-") or name.endswith((".bak", ".old-dkms", ".dpkg-bak", ".new")):
            continue
        path = f"/boot/{name}"
        stat = root.at(path).stat()
        known = kept.get(path)
        if known and known[0] == stat.st_mtime and known[1] == stat.st_size:
            names = known[2]
        else:
            names = _list(root, tool, path)
            kept[path] = (stat.st_mtime, stat.st_size, names)
        images.append(Image(path, stat.st_mtime, frozenset(names)))
    return tuple(images)


def keep_listings(root: Root, images: Iterable[Image]) -> None:
    """Keep the listings for later runs of this boot."""
    document = {one.path: [one.made, root.at(one.path).stat().st_size, sorted(one.names)] for one in images}
    write_file(root.at(CACHE), json.dumps(document), 0o600)


def regenerate(root: Root, tool: Tool) -> None:
    """Make all images anew; Fault with the tool's answer."""
    hint = f"run {' '.join(tool.regenerate)} by hand to see all of it"
    root.must(tool.regenerate, what="make the initramfs anew", hint=hint, timeout=1800)


def builtin_modules(root: Root) -> frozenset[str]:
    """Return the modules that are built into the running kernel, with underscores (modules.builtin)."""
    release = read_text(root.proc("sys", "kernel", "osrelease")) or ""
    text = read_text(root.at(f"/lib/modules/{release}/modules.builtin")) or ""
    return frozenset(os.path.basename(line).split(".ko")[0].replace("-", "_") for line in text.splitlines())


def modules_of(root: Root, modalias: str) -> frozenset[str]:
    """Return the modules that the kernel would load for a modalias, with underscores; none without modprobe."""
    if not modalias:
        return frozenset()
    try:
        done = root.run(["modprobe", "--resolve-alias", modalias], timeout=60)
    except Fault:
        return frozenset()
    return frozenset(name.replace("-", "_") for name in done.out.split()) if done.code == 0 else frozenset()


def _kept(root: Root) -> dict[str, tuple[float, int, list[str]]]:
    try:
        raw: dict[str, Any] = json.loads(read_text(root.at(CACHE)) or "{}")
        return {path: (float(made), int(size), [str(name) for name in names]) for path, (made, size, names) in raw.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _list(root: Root, tool: Tool, path: str) -> list[str]:
    done = root.run([*tool.listing, str(root.at(path))], timeout=300)
    if done.code != 0:
        raise Fault(
            what="list an initramfs",
            subject=path,
            cause=f"{tool.listing[0]} ended with {done.code}: {done.err.strip()[-200:]}",
            hint=f"make it anew: {' '.join(tool.regenerate)}",
        )
    return [line.strip() for line in done.out.splitlines() if line.strip()]

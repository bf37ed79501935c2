# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0 or later (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers and images as tar files: the form of `docker save`, which containerd, CRI-O's skopeo and podman load."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = 1767225600  # one time stamp for all files of ours: equal trees make equal layers


class Entry(NamedTuple):
    """One member of a layer: a folder (data None, no target), a file, or a symbolic link (target)."""

    path: str
    data: Optional[bytes] = None
    mode: int = 0o644
    target: str = ""


def write_layer(out: Path, entries: Iterable[Entry]) -> Path:
    """Write a layer tar of these entries, all root's and of one time; return its path."""
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.path)
            member.mode, member.mtime = entry.mode, EPOCH
            if entry.target:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target
            elif entry.data is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            else:
                member.size = len(entry.data)
            archive.addfile(member, None if entry.data is None else io.BytesIO(entry.data))
    return out


def write_image(
    out: Path,
    name: str,
    layers: Sequence[Path],
    *,
    env: Mapping[str, str],
    entrypoint: Sequence[str],
    user: str = "",
) -> Path:
    """Write a docker archive (manifest.json, config, layer tars) and return its path.

    `layers` are uncompressed layer tars, the lowest first; `name` is REPOSITORY:TAG.
    """
    sums = [_sha256(layer) for layer in layers]
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"{key}={value}" for key, value in env.items()], "Entrypoint": list(entrypoint), "User": user},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in sums]},
    }
    encoded = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    members = [f"{each}/layer.tar" for each in sums]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": members}]).encode()
    with whole(out) as draft, tarfile.open(draft, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, layer in zip(members, layers):
            archive.add(layer, member, filter=_anonymous)
        for member, data in ((config_name, encoded), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out


def names_in(archive: Path) -> list[str]:
    """Return the names that a docker archive gives its image."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise ValueError(f"{archive}: manifest.json is no file")
        return [str(name) for image in json.load(manifest) for name in image["RepoTags"]]


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """Yield a draft's path; the file gets its name only when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, out)
    finally:
        if draft.exists():
            draft.unlink()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()

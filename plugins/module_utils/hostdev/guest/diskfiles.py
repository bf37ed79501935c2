"""Making the files behind the guest's disks: empty ones, and qcow2 layers over images that are mounted read-only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..device.faults import Absent, Fault
from ..root import Root
from .disks import DiskFile

_QCOW2 = b"QFI\xfb"


def make_disk_files(root: Root, files: Iterable[DiskFile]) -> None:
    """Make each file anew; a Fault names the file, and what the system or qemu-img said.

    A disk lives as long as its guest's run: what a former start left is replaced.
    """
    for file in files:
        path = root.at(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.image_folder:
            _make_layer(root, path, find_image(root, file))
        else:
            _make_empty(path, file.size)


def _make_empty(path: Path, size: int) -> None:
    try:
        with open(path, "wb") as made:
            made.truncate(size)
    except OSError as error:
        cause = f"{error.strerror} (errno {error.errno})"
        raise Fault(
            what="make an empty disk", subject=f"{path} ({size} bytes)", cause=cause, hint="give the pod's volume more room"
        ) from error


def _make_layer(root: Root, path: Path, image: Path) -> None:
    with open(image, "rb") as opened:
        form = "qcow2" if opened.read(len(_QCOW2)) == _QCOW2 else "raw"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", form, "-b", str(image), str(path)]
    root.must(command, what="make a writable layer over a disk image", hint="the launcher image has to hold qemu-utils")


def find_image(root: Root, file: DiskFile) -> Path:
    """Return the image file of a container disk: the one named, or the only one below `disk`; Absent otherwise."""
    folder = root.at(file.image_folder)
    if file.image_path:
        image = folder / file.image_path.lstrip("/")
        found = [image] if image.is_file() else []
        where = str(image)
    else:
        where = str(folder / "disk")
        found = [Path(entry.path) for entry in os.scandir(where) if entry.is_file()] if os.path.isdir(where) else []
    if len(found) != 1:
        cause = f"{len(found)} files there, one is needed"
        raise Absent(what="find the image of a container disk", subject=where, cause=cause, hint="name it in containerDisk.path")
    return found[0]

"""The files behind disks are made anew, and layers name the image that is really there."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.diskfiles import make_disk_files
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.disks import DiskFile
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root


def test_empty_disk_is_made_anew(tmp_path: Path) -> None:
    old = tmp_path / "disks/a.raw"
    old.parent.mkdir()
    old.write_bytes(b"left by a former run")
    make_disk_files(Root(tmp_path), [DiskFile("/disks/a.raw", "raw", 4096)])
    assert old.read_bytes() == bytes(4096)


@pytest.mark.parametrize(("content", "form"), [(b"QFI\xfb1234", "qcow2"), (b"\x00" * 8, "raw"), (b"", "raw")])
def test_layer(tmp_path: Path, content: bytes, form: str) -> None:
    image = tmp_path / "images/a/disk/system.img"
    image.parent.mkdir(parents=True)
    image.write_bytes(content)
    ran: list[list[str]] = []

    def run(command: object, timeout: float) -> Done:
        ran.append(list(command))  # type: ignore[call-overload]
        return Done(0, "", "")

    make_disk_files(Root(tmp_path, run), [DiskFile("/disks/a.qcow2", "qcow2", 0, "/images/a")])
    assert ran == [["qemu-img", "create", "-q", "-f", "qcow2", "-F", form, "-b", str(image), str(tmp_path / "disks/a.qcow2")]]


@pytest.mark.parametrize(("files", "path"), [((), ""), (("disk/a", "disk/b"), ""), (("disk/a",), "/disk/b")])
def test_no_image_or_several(tmp_path: Path, files: tuple[str, ...], path: str) -> None:
    for name in files:
        (tmp_path / "images/a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images/a" / name).touch()
    with pytest.raises(Absent, match=r"name it in containerDisk\.path"):
        make_disk_files(Root(tmp_path), [DiskFile("/disks/a.qcow2", "qcow2", 0, "/images/a", path)])

"""Which grant folders a mount table holds, over made tables."""

from __future__ import annotations

import os

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.mounts import granted

ONE, TWO = "/run/vfio-passthrough/grant/X/16", "/run/vfio-passthrough/grant/X/17"
FOLDERS = {(ONE, os.makedev(0, 25)), (TWO, os.makedev(0, 25))}


def line(root: str, point: str, device: str = "0:25") -> str:
    return f"900 800 {device} {root} {point} ro,nosuid - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("table", "folders"),
    [
        ("", set()),
        (line("/vfio-passthrough/grant/X/16", ONE) + line("/vfio-passthrough/grant/X/17", TWO), {ONE, TWO}),
        (line("/vfio-passthrough/grant/X/16", ONE) * 5, {ONE}),  # the same one again
        (line("/vfio-passthrough/grant/X/16", TWO), set()),  # its own folder under another's name
        (line("/", ONE, "0:99"), set()),  # a file system of its own
        (line("/vfio-passthrough/grant/Y/16", ONE), set()),
        ("nonsense\n", set()),
        (line("/a", f"/b\v1 2 0:25 /vfio-passthrough/grant/X/16 {ONE} ro"), set()),  # no end of a line
        (line("/vfio-passthrough/grant/X/16", "/run/vfio\\055passthrough/grant/X/16"), {ONE}),  # octal escapes
    ],
)
def test_only_mounts_of_our_folders_count(table: str, folders: set[str]) -> None:
    assert granted(table, FOLDERS) == folders

"""QEMU with vfio-user devices (11 or newer), taken from Debian's backports into the cache and run in place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..harness.cache import cached
from . import debian

HERE = Path(__file__).resolve().parent
PACKAGES = ("qemu-system-x86", "seabios", "ovmf", "libc6")
# the tree's own loader and libraries: it runs on any distribution, whatever its C library
LAUNCHER = """#!/bin/sh
tree=$(dirname "$(realpath "$0")")/tree
lib=$tree/usr/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$lib/qemu; export QEMU_MODULE_DIR
exec "$tree/usr/lib64/ld-linux-x86-64.so.2" --library-path "$lib" "$tree/usr/bin/qemu-system-x86_64" \\
  -L "$tree/usr/share/seabios" -L "$tree/usr/share/qemu" "$@"
"""


def prerequisites() -> list[str]:
    """Return the Debian packages that a test machine needs for the VM harness (packages.txt)."""
    return (HERE / "packages.txt").read_text(encoding="ascii").split()


def qemu() -> Path:
    """Return the launcher of QEMU; builds it once (a 200 MB tree)."""
    return cached("qemu", [LAUNCHER, " ".join(PACKAGES), debian.SUITE], _build, "15 s") / "qemu"


def firmware(name: str) -> Path:
    """Return a file of the OVMF package, for instance OVMF_CODE_4M.fd."""
    return qemu().parent / "tree/usr/share/OVMF" / name


def accelerator() -> str:
    """Return QEMU's accelerator: emulation, unless HOSTDEV_TEST_ACCEL=kvm asks for KVM (never probed: it may hang)."""
    return "kvm" if os.environ.get("HOSTDEV_TEST_ACCEL") == "kvm" else "tcg,thread=multi,tb-size=1024"


def _build(place: Path) -> None:
    # mmdebstrap writes a tar: a folder would belong to subordinate user ids, awkward to remove
    options = ["--variant=extract", '--aptopt=APT::Default-Release "' + debian.SUITE + '-backports"', *debian.SLIM[:2]]
    hook = (
        'sed -n "s/^deb\\(.* [^ ]*\\/debian\\/\\?\\) ' + debian.SUITE + " main.*/deb\\1 " + debian.SUITE + '-backports main/p"'
        ' "$1/etc/apt/sources.list" | head -n1 >"$1/etc/apt/sources.list.d/backports.list"'
    )
    debian.mmdebstrap(str(place / "root.tar"), PACKAGES, [*options, f"--setup-hook={hook}"])
    tree = place / "tree"
    tree.mkdir()
    debian.run(["tar", "-C", str(tree), "--no-same-owner", "--exclude=./dev/*", "-xf", str(place / "root.tar")])
    (place / "root.tar").unlink()
    shutil.rmtree(tree / "var", ignore_errors=True)
    launcher = place / "qemu"
    launcher.write_text(LAUNCHER, encoding="ascii")
    launcher.chmod(0o755)

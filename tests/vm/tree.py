"""The worker's root file system as a tar: Debian with kernel and GRUB, tuned to boot fast under emulation."""

from __future__ import annotations

from pathlib import Path

from ..harness.cache import cached
from . import debian

PARTS = Path(__file__).resolve().parent / "image"
# what the roles install on a node: already there by default, for apt takes minutes inside an emulated machine
PREINSTALL = ("python3-grpcio", "python3-protobuf", "python3-lxml", "python3-pyudev")


def tree(more: tuple[str, ...] = PREINSTALL) -> Path:
    """Return a folder with root.tar, kernel (its version as text), and the ssh key pair id, id.pub."""
    names = ("packages.txt", "essential.sh", "customize.sh", "tune.sh")
    inputs = [*(PARTS / name for name in names), " ".join(more), debian.SUITE]
    return cached("worker-tree", inputs, lambda place: _build(place, more), "100 s")


def kernel_version(more: tuple[str, ...] = PREINSTALL) -> str:
    """Return the version of the worker's kernel, as `uname -r` says it."""
    return (tree(more) / "kernel").read_text(encoding="ascii").strip()


def _build(place: Path, more: tuple[str, ...]) -> None:
    debian.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "worker-tests", "-f", str(place / "id")])
    packages = (PARTS / "packages.txt").read_text(encoding="ascii").split()
    hooks = [
        f'--essential-hook={PARTS}/essential.sh "$1"',
        f'--customize-hook={PARTS}/customize.sh "$1" {place}/id.pub',
        f'--customize-hook={PARTS}/tune.sh "$1"',
        f'--customize-hook=ls "$1/usr/lib/modules" >{place}/kernel',
        '--customize-hook=chroot "$1" update-initramfs -u -k all',
    ]
    place.chmod(0o777)  # a user namespace's root writes the kernel's version here
    debian.mmdebstrap(str(place / "root.tar"), [*packages, *more], ["--variant=minbase", *debian.SLIM, *hooks])
    place.chmod(0o755)

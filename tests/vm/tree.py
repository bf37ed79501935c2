"""The worker's root file system as a tar: Debian with kernel and GRUB, tuned to boot fast under emulation."""

from __future__ import annotations

from pathlib import Path

from ..harness.cache import Input, cached
from . import debian

PARTS = Path(__file__).resolve().parent / "image"
# what the roles install on a node: there by default, for under emulation apt takes more than half a minute for them
PREINSTALL = ("python3-grpcio", "python3-inotify", "python3-protobuf", "python3-lxml", "python3-pyudev")
# with the mirror's lists of the day at hand, the first apt-get update inside the worker takes 10 s instead of 40
KEEP_LISTS = "--skip=cleanup/apt/lists"


def tree(preinstall: bool = True) -> Path:
    """Return a folder with root.tar, kernel (its version as text), and the ssh key pair id, id.pub."""
    more = PREINSTALL if preinstall else ()
    names = ("packages.txt", "essential.sh", "customize.sh", "tune.sh")
    inputs: list[Input] = [*(PARTS / name for name in names), " ".join(more), debian.SUITE, KEEP_LISTS]
    return cached("worker-tree", inputs, lambda place: _build(place, more), "100 s")


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
    debian.mmdebstrap(str(place / "root.tar"), [*packages, *more], ["--variant=minbase", KEEP_LISTS, *debian.SLIM, *hooks])
    place.chmod(0o755)

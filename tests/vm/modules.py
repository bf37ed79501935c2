"""Kernel modules of the tests' own, built against exactly the worker's kernel."""

from __future__ import annotations

from pathlib import Path

from ..harness.cache import Input, cached
from . import debian

HERE = Path(__file__).resolve().parent
SOURCES = ("nvidia.c",)
TOOLS = ("make", "kmod", "xz-utils")
# a fixed mark instead of build paths: the same source gives the same module
BUILD = """set -eu
cd /build
for source in *.c; do echo "obj-m += ${source%.c}.o"; done >Kbuild
make -s -C /usr/src/linux-headers-$1 M=/build modules
strip -g ./*.ko
tar -cf modules.tar ./*.ko
"""


def driver_modules(version: str) -> Path:
    """Return a folder with NAME.ko for each of SOURCES, built for the kernel version, and version itself as a file."""
    inputs: list[Input] = [BUILD, version, *(HERE / name for name in SOURCES)]
    return cached("worker-modules", inputs, lambda place: _build(place, version), "80 s")


def _build(place: Path, version: str) -> None:
    (place / "build.sh").write_text(BUILD, encoding="ascii")
    copied = " ".join(str(path) for path in (place / "build.sh", *(HERE / name for name in SOURCES)))
    hooks = [
        '--customize-hook=mkdir "$1/build"',
        f"--customize-hook=copy-in {copied} /build",
        f'--customize-hook=chroot "$1" sh /build/build.sh {version}',
        f"--customize-hook=copy-out /build/modules.tar {place}",
    ]
    # the headers of this very version: when the mirror has moved on, the tree has to be built anew as well
    packages = [f"linux-headers-{version}", *TOOLS]
    try:
        debian.mmdebstrap("/dev/null", packages, ["--variant=apt", "--format=null", *debian.SLIM, *hooks])
    except RuntimeError as error:
        hint = f"if the mirror no longer has linux-headers-{version}, remove the worker-tree entries from the cache and run again"
        raise RuntimeError(f"{error}\n{hint}") from error
    debian.run(["tar", "-C", str(place), "--no-same-owner", "-xf", str(place / "modules.tar")])
    (place / "version").write_text(version + "\n", encoding="ascii")

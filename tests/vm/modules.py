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
# what Debian's kernels leave out: the samples of mediated devices, and iommufd with the vfio modules that know it.
# The set in vfio/ replaces the kernel's own; iommufd needs one helper that its image lacks, and an object of its own serves
VFIO_BUILD = """set -eu
headers=/usr/src/linux-headers-$1
series=$(ls /usr/src | sed -n 's/^linux-source-\\(.*\\)\\.tar\\.xz$/\\1/p')
source=linux-source-$series
tar -C /build -xf /usr/src/$source.tar.xz $source/samples/vfio-mdev $source/drivers/vfio $source/drivers/iommu $source/lib/interval_tree.c
cd /build/$source
compile() { folder=$1; shift; make -s -j2 -C $headers M=$folder "$@" modules; }
mkdir /build/mdev /build/vfio /build/vfio/iommu
cp samples/vfio-mdev/* /build/mdev
compile /build/mdev CONFIG_SAMPLE_VFIO_MDEV_MTTY=m CONFIG_SAMPLE_VFIO_MDEV_MBOCHS=m
cp -r drivers/iommu/iommufd drivers/iommu/*.h /build/vfio/iommu
cp -r drivers/vfio /build/vfio/vfio
echo 'obj-m += iommu/iommufd/ vfio/' >/build/vfio/Kbuild
{
  printf '#include <linux/%s.h>\\n' interval_tree compiler export
  sed -n '/^#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER/,/^#endif/p' lib/interval_tree.c | sed '1d;$d;/EXPORT_SYMBOL/d'
} >/build/vfio/iommu/iommufd/span.c
echo 'iommufd-y += span.o' >>/build/vfio/iommu/iommufd/Makefile
flags="-DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_VFIO_DEVICE_CDEV=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1 -I/build/vfio"
compile /build/vfio CONFIG_IOMMUFD=m CONFIG_VFIO_DEVICE_CDEV=y CONFIG_IOMMUFD_DRIVER= "KCFLAGS=$flags"
mkdir -p /build/out/mdev /build/out/vfio
cp /build/mdev/*.ko /build/out/mdev
find /build/vfio -name '*.ko' -exec cp {} /build/out/vfio ';'
strip -g /build/out/*/*.ko
tar -C /build/out -cf /build/modules.tar mdev vfio
"""
SOURCE = "linux-source"


def driver_modules(version: str) -> Path:
    """Return a folder with NAME.ko for each of SOURCES, built for the kernel version, and version itself as a file."""
    inputs: list[Input] = [BUILD, version, *(HERE / name for name in SOURCES)]
    return cached("worker-modules", inputs, lambda place: _build(place, version, BUILD, [HERE / name for name in SOURCES]), "80 s")


def vfio_modules(version: str) -> Path:
    """Return a folder with mdev/ (mtty, mbochs) and vfio/ (iommufd, and vfio, vfio-pci ... with a node per device).

    Both are for the kernel version; a module of the one folder does not fit to those of the other.
    """
    return cached("worker-vfio-modules", [VFIO_BUILD, version], lambda place: _build(place, version, VFIO_BUILD, [], SOURCE), "2 min")


def _build(place: Path, version: str, script: str, sources: list[Path], *more: str) -> None:
    (place / "build.sh").write_text(script, encoding="ascii")
    copied = " ".join(str(path) for path in (place / "build.sh", *sources))
    hooks = [
        '--customize-hook=mkdir "$1/build"',
        f"--customize-hook=copy-in {copied} /build",
        f'--customize-hook=chroot "$1" sh /build/build.sh {version}',
        f"--customize-hook=copy-out /build/modules.tar {place}",
    ]
    # the headers of this very version: when the mirror has moved on, the tree has to be built anew as well
    packages = [f"linux-headers-{version}", *TOOLS, *more]
    try:
        debian.mmdebstrap("/dev/null", packages, ["--variant=apt", "--format=null", *debian.SLIM, *hooks])
    except RuntimeError as error:
        hint = f"if the mirror no longer has linux-headers-{version}, remove the worker-tree entries from the cache and run again"
        raise RuntimeError(f"{error}\n{hint}") from error
    debian.run(["tar", "-C", str(place), "--no-same-owner", "-xf", str(place / "modules.tar")])
    (place / "version").write_text(version + "\n", encoding="ascii")

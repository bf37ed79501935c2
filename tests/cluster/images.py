"""Images of the tests, made without a registry: pause, busybox, and the product's own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ansible_collections.vfio.passthrough.files.image import build_image, packages
from ansible_collections.vfio.passthrough.files.image.archive import Entry, write_image, write_layer
from ansible_collections.vfio.passthrough.files.image.images import DEVICE_PLUGIN, LAUNCHER, SUITE, Image

from ..harness.cache import cached, folder
from . import binaries
from .settings import PAUSE

BUSYBOX = "localhost/busybox:1"
APPLETS = ("sh", "cat", "echo", "env", "id", "ls", "mount", "sleep", "stat", "test", "touch", "true", "false", "wget")
# A first process has no default action for signals: without the trap a machine's shutdown waits for its time-out.
SLEEP = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep 1000000 & wait")
KEPT = 3  # the product's images, and disks with them: each change of the runtime makes another one, 200 MB and more
IN_USE = 3600.0  # seconds: another run may still read what is younger


def pause_image() -> Path:
    """Return the archive of localhost/pause:1, which holds a pod's namespaces."""
    return _small("pause", PAUSE)


def busybox_image() -> Path:
    """Return the archive of localhost/busybox:1 (2 MB): a shell and a few programs; it sleeps when nothing is asked."""
    return _small("busybox", BUSYBOX)


def packages_layer(image: Image) -> Path:
    """Return the packages' layer of a product's image, made once per list."""

    def build(out: Path) -> None:
        packages.packages_layer(image, out / "layer.tar")

    return cached(f"{image.name}-layer", [SUITE, *image.listed(), *image.shape], build, "1 min") / "layer.tar"


def product_name(image: Image, runtime: Path) -> str:
    """Return the name of a product's image with this runtime: localhost/vfio-passthrough-NAME:DIGEST."""
    return build_image.name_of(image, build_image.runtime_entries(runtime))


def product_image(image: Image, runtime: Path, name: str = "") -> Path:
    """Return the archive of a product's image: the packages' layer and one with the runtime (a tree or an archive).

    Its name, where none is given, is archive.names_in(file): product_name reads the tree again, which may have changed meanwhile.
    """
    entries = build_image.runtime_entries(runtime)
    named = name or build_image.name_of(image, entries)
    base = packages_layer(image)

    def build(out: Path) -> None:
        build_image.assemble(image, entries, base, out / f"{image.name}.tar", named)

    inputs = [named, build_image.name_of(image, entries), base.parent.name]
    made = cached(f"{image.name}-image", inputs, build, "3 s") / f"{image.name}.tar"
    forget_old(made.parent)
    return made


def launcher_name(runtime: Path) -> str:
    """Return the name of the launcher's image with this runtime."""
    return product_name(LAUNCHER, runtime)


def launcher_image(runtime: Path) -> Path:
    """Return the archive of the launcher's image."""
    return product_image(LAUNCHER, runtime)


def plugin_image(runtime: Path, name: str = "") -> Path:
    """Return the archive of the device plugin's image; name: another one than its own."""
    return product_image(DEVICE_PLUGIN, runtime, name)


def _small(file: str, name: str) -> Path:
    busybox = Path(binaries.program("busybox"))

    def build(out: Path) -> None:
        folders = [Entry(path) for path in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var")]
        links = [Entry(f"bin/{applet}", target="busybox") for applet in APPLETS]
        layer = write_layer(out / "layer.tar", [*folders, Entry("bin/busybox", busybox.read_bytes(), 0o755), *links])
        write_image(out / f"{file}.tar", name, [layer], env={"PATH": "/bin"}, entrypoint=SLEEP)
        layer.unlink()

    return cached(f"image-{file}", [name, busybox, *APPLETS, *SLEEP], build, "1 s") / f"{file}.tar"


def forget_old(current: Path) -> None:
    """Remove the cache's older entries of the same name, but for the newest few and those that may be in use."""
    name = current.name.rpartition("-")[0]
    found = sorted(folder().glob(f"{name}-????????????"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEPT:]:
        if path != current and path.stat().st_mtime < time.time() - IN_USE:
            shutil.rmtree(path, ignore_errors=True)

"""Images of the tests, made without a registry: pause, busybox, and the product's launcher."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ansible_collections.vfio.passthrough.files.launcher import build_image
from ansible_collections.vfio.passthrough.files.launcher.build_image import Entry, write_image, write_layer

from ..harness.cache import cached, folder
from . import binaries
from .settings import PAUSE

BUSYBOX = "localhost/busybox:1"
APPLETS = ("sh", "cat", "echo", "env", "id", "ls", "mount", "sleep", "stat", "test", "touch", "true", "false", "wget")
# A first process has no default action for signals: without the trap a machine's shutdown waits for its time-out.
SLEEP = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep 1000000 & wait")
KEPT = 3  # launcher images, and disks with them: each change of the runtime makes another one, 200 MB and more
IN_USE = 3600.0  # seconds: another run may still read what is younger


def pause_image() -> Path:
    """Return the archive of localhost/pause:1, which holds a pod's namespaces."""
    return _small("pause", PAUSE)


def busybox_image() -> Path:
    """Return the archive of localhost/busybox:1 (2 MB): a shell and a few programs; it sleeps when nothing is asked."""
    return _small("busybox", BUSYBOX)


def launcher_layer(packages: list[str] | None = None) -> Path:
    """Return the layer of the launcher's packages (default: the product's list), made once per list."""
    listed = build_image.HERE / "packages.txt"
    names = build_image.packages(listed) if packages is None else packages
    shape = [build_image.HERE / name for name in build_image.SHAPE]

    def build(out: Path) -> None:
        build_image.packages_layer(out / "layer.tar", names)

    return cached("launcher-layer", [build_image.SUITE, *names, *shape], build, "1 min") / "layer.tar"


def launcher_name(runtime: Path) -> str:
    """Return the name of the launcher image with this runtime: localhost/vfio-passthrough-launcher:DIGEST."""
    return build_image.image_name(runtime, build_image.HERE / "packages.txt")


def launcher_image(runtime: Path) -> Path:
    """Return the archive of the launcher image: the packages' layer and one with the runtime (a tree or an archive).

    Its name is build_image.names_in(archive): launcher_name reads the tree again, which may have changed meanwhile.
    """
    entries = build_image.runtime_entries(runtime)
    name = build_image.name_of(entries, build_image.HERE / "packages.txt")
    base = launcher_layer()

    def build(out: Path) -> None:
        top = build_image.runtime_layer(out / "runtime.tar", entries, base)
        env, entrypoint, user = build_image.ENVIRONMENT, build_image.ENTRYPOINT, build_image.USER
        write_image(out / "launcher.tar", name, [base, top], env=env, entrypoint=entrypoint, user=user)
        top.unlink()

    made = cached("launcher-image", [name, base.parent.name], build, "3 s") / "launcher.tar"
    forget_old(made.parent)
    return made


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

"""The made hosts as udev shows them: the same tree inside a umockdev testbed, and device events of the kernel.

A testbed works only in a process that was started with umockdev's preload library, which is why a test hands over a
scene - a function of its own file - that runs in such a process: the rest of the run stays as it is.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

from .host import FakeHost

PRELOAD = "libumockdev-preload.so.0"
LIBRARY = "libumockdev.so.0"
# the folder in which ansible_collections lies
COLLECTIONS = Path(__file__).parents[5]


class UdevHost:
    """A made host that this process sees as its own /sys and /dev; events are sent by hand, as nothing binds here."""

    def __init__(self) -> None:
        """Make an empty host; RuntimeError in a process without the preload library."""
        self._library = library = ctypes.CDLL(LIBRARY)
        library.umockdev_testbed_new.restype = ctypes.c_void_p
        library.umockdev_testbed_get_root_dir.restype = ctypes.c_char_p
        self._bed = ctypes.c_void_p(library.umockdev_testbed_new())
        self.host = FakeHost(Path(library.umockdev_testbed_get_root_dir(self._bed).decode()))
        if not os.path.samefile("/sys", self.host.base / "sys"):
            raise RuntimeError(f"this process was started without {PRELOAD}: install the package umockdev")

    def event(self, folder: Path, action: str) -> None:
        """Tell of a device: bind, unbind, add, remove; its properties are those of its uevent file."""
        path = "/" + str(folder.relative_to(self.host.base))
        self._library.umockdev_testbed_uevent(self._bed, path.encode(), action.encode())


def in_testbed(scene: Callable[[UdevHost], Any]) -> Any:
    """Run a scene, a function at the top of its file, in a process with a testbed and return what it returned, by JSON.

    AssertionError with the process's own words when it fails.
    """
    command = [sys.executable, "-m", __name__, scene.__code__.co_filename, scene.__name__]
    paths = os.pathsep.join(filter(None, [str(COLLECTIONS), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "LD_PRELOAD": PRELOAD, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main(file: str, name: str) -> None:
    """Run the scene of that name of a file and print what it returns."""
    spec = importlib.util.spec_from_file_location("scene", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bed = UdevHost()
    try:
        sys.stdout.write(json.dumps(getattr(module, name)(bed)) + "\n")
    finally:
        # the library would do it at its own end, which Python never lets come
        shutil.rmtree(bed.host.base, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

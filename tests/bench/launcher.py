"""The launcher from process start to createXML, without what libvirt takes: it tells its own time, and this reads it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..fakes.pod import FAKES, LAUNCHER, MODULE_UTILS, Pod, vmi
from ..guest.guest import PYTHON, USER, as_container, guest_elf
from .figures import Figure

REPETITIONS = 5
MOST = 0.5
OWN = re.compile(r"own time (\d+\.\d+) s")


def real_libvirt() -> bool:
    """Tell whether the launcher can run here as in its image: root (to become another user), libvirtd, QEMU."""
    programs = all(shutil.which(name) for name in ("libvirtd", "qemu-system-x86_64", "unshare", "setpriv"))
    return os.geteuid() == 0 and programs and imports(PYTHON, "libvirt, lxml.etree") is not None


def imports(python: str, names: str) -> float | None:
    """Return the seconds that an interpreter takes to start and import these, None when it cannot."""
    begin = time.perf_counter()
    done = subprocess.run([python, "-c", f"import {names}"], capture_output=True, check=False)
    return None if done.returncode else time.perf_counter() - begin


def runtime_of_the_image(folder: Path) -> Path:
    """Return a folder with the runtime as the image has it: with byte code of the interpreter that runs it."""
    shutil.copytree(MODULE_UTILS / "hostdev", folder / "hostdev", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([PYTHON, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)], check=True)
    return folder


def own_time(folder: Path, *, real: bool) -> float:
    """Run a small guest to its end and return the launcher's own seconds."""
    (folder / "user").mkdir()
    pod = Pod(folder / "w", as_container(folder / "user") if real else ())
    if real:
        (pod.folder / "kernel-boot").mkdir()
        shutil.copy(guest_elf(), pod.folder / "kernel-boot/guest.elf")
        pod.describe(vmi("off"))
        for path in (pod.folder, *pod.folder.rglob("*")):
            os.chown(path, USER, USER)
        runtime = runtime_of_the_image(folder / "runtime")
        pod.run([PYTHON, str(LAUNCHER), str(runtime), json.dumps(pod.options(daemon=["libvirtd"]))])
    else:
        pod.start(script={"stops": 0})
    ended = pod.end()
    found = OWN.search(ended.log)
    if ended.code or not found:
        raise SystemExit(f"the launcher did not do its work: {ended}")
    return float(found[1])


def measure() -> Iterator[Figure]:
    """Yield the best of some starts, and the same beside an interpreter that only imports what every start needs."""
    real = real_libvirt()
    ours, bare = [], []
    for _turn in range(REPETITIONS):
        # not below a folder that is root's alone, and short for the sake of QEMU's monitor socket
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            os.chmod(name, 0o755)
            ours.append(own_time(Path(name), real=real))
        bare.append(imports(PYTHON, "libvirt, lxml.etree") if real else imports(sys.executable, "lxml.etree"))
    known = [one for one in bare if one is not None]
    kind = "real libvirt" if real else f"{FAKES.name}/libvirt"
    yield Figure(f"launcher: own time to createXML ({kind})", "s", min(ours), aim=MOST)
    yield Figure("launcher: own time, beside an interpreter that imports its libraries", "s", min(ours), min(known))

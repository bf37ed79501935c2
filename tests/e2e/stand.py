"""The line as a thing that stands: `stand start FOLDER` leaves it running in the background, `stand stop FOLDER` ends it.

FOLDER then holds the inventory, the variables, and the scripts `look` (a shell on the worker) and `kubectl`. Molecule's
create and destroy use it; so may people.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..cluster.controlplane import ControlPlane
from ..harness.say import say
from .line import start

MODULE = "ansible_collections.vfio.passthrough.tests.e2e.stand"
_PATIENCE = 1800.0


def keep(folder: Path) -> int:
    """Hold the line until SIGTERM; `ready` appears when it stands."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    with ControlPlane() as plane:
        line = start(folder, plane)
        with line.worker:
            ssh = f"ssh -q -p {line.worker.port} -i {line.worker.key} {' '.join(line.worker.shell.common)} root@127.0.0.1"
            _script(folder / "look", ssh)
            _script(folder / "kubectl", f"{plane.programs}/kubectl --kubeconfig {plane.kubeconfig}")
            # beside the inventory, where ansible finds them by itself
            (folder / "group_vars").mkdir(exist_ok=True)
            (folder / "group_vars/hostdev.yml").write_bytes(line.variables.read_bytes())
            (folder / "ready").touch()
            while not ended and line.worker.running():
                time.sleep(0.5)
    return 0


def _script(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def begin(folder: Path) -> int:
    """Start the keeper and wait until the line stands; what it says goes to FOLDER/stand.log."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "ready").exists() and _alive(folder):
        say(f"the line stands already in {folder}")
        return 0
    (folder / "ready").unlink(missing_ok=True)
    with open(folder / "stand.log", "wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", MODULE, "keep", str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (folder / "pid").write_text(str(keeper.pid), encoding="ascii")
    limit = time.monotonic() + _PATIENCE
    while not (folder / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > limit:
            sys.stdout.write((folder / "stand.log").read_text(encoding="utf-8")[-4000:])
            end(folder)
            return 1
        time.sleep(0.5)
    return 0


def end(folder: Path) -> int:
    """End the keeper and wait until it is gone; nothing to do is no fault."""
    if _alive(folder):
        pid = int((folder / "pid").read_text(encoding="ascii"))
        os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + 60
        while _alive(folder) and time.monotonic() < limit:
            time.sleep(0.2)
        if _alive(folder):
            os.kill(pid, signal.SIGKILL)
    for name in ("ready", "pid"):
        (folder / name).unlink(missing_ok=True)
    return 0


def _alive(folder: Path) -> bool:
    """Return whether the recorded keeper runs and is still ours: a pid may have gone to another process."""
    try:
        pid = int((folder / "pid").read_text(encoding="ascii"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return False
    return MODULE.encode() in words and state != "Z"


WORK = {"keep": keep, "start": begin, "stop": end}


def main() -> int:
    """Run one of start, stop, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("action", choices=WORK)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    return WORK[options.action](options.folder.resolve())


if __name__ == "__main__":
    raise SystemExit(main())

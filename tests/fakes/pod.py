"""A launcher pod without Kubernetes: a work folder, a description, and the launcher as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

FAKES = Path(__file__).resolve().parent
LAUNCHER = FAKES.parent / "guest" / "launcher.py"
MODULE_UTILS = FAKES.parents[1] / "plugins" / "module_utils"
PATIENCE = 60.0


def vmi(arguments: str = "", devices: Mapping[str, Any] | None = None, grace: int = 20) -> dict[str, Any]:
    """Return the document of a small guest that boots guest.elf of its kernel image with these arguments."""
    boot = {"container": {"image": "localhost/guest:1", "kernelPath": "/guest.elf"}, "kernelArgs": arguments or "none"}
    domain = {"memory": {"guest": "64Mi"}, "firmware": {"kernelBoot": boot}, "devices": dict(devices or {})}
    spec = {"terminationGracePeriodSeconds": grace, "domain": domain}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "probe"}, "spec": spec}


@dataclass(frozen=True)
class Ended:
    """What a launcher left behind: exit code, the guest's output, its own lines, the termination message."""

    code: int
    out: str
    log: str
    message: dict[str, str]


@dataclass
class Pod:
    """One launcher below a folder. `wrap`: what runs before the launcher's command (another user, another root)."""

    folder: Path
    wrap: tuple[str, ...] = ()
    process: Optional[subprocess.Popen[str]] = None
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "termination").touch()
        self.describe(vmi())

    def describe(self, document: Any) -> None:
        """Put the VM's description where the launcher reads it."""
        text = document if isinstance(document, str) else json.dumps(document)
        (self.folder / "vmi.json").write_text(text, encoding="utf-8")

    def options(self, **changes: Any) -> dict[str, Any]:
        """Return the launcher's options with all paths below the folder."""
        own = {"vmi": "vmi.json", "folder": "", "grants": "grant", "termination": "termination", "capabilities": "capabilities"}
        return {**{key: str(self.folder / name) for key, name in own.items()}, "emulation": "always", "patience": 30.0, **changes}

    def start(self, how: str = "stay", script: Mapping[str, Any] | None = None, **changes: Any) -> None:
        """Start the launcher over the fake libvirt; how: what the fake libvirtd does, script: what happens to the domain."""
        options = self.options(**{"daemon": [sys.executable, str(FAKES / "libvirtd.py"), how], **changes})
        self.env["FAKE_LIBVIRT"] = json.dumps(dict(script or {}))
        self.run([sys.executable, str(LAUNCHER), str(MODULE_UTILS), json.dumps(options), str(FAKES)])

    def run(self, command: Sequence[str]) -> None:
        """Start a command as the launcher."""
        pipe = subprocess.PIPE
        env = {**os.environ, **self.env}
        self.process = subprocess.Popen([*self.wrap, *command], stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, env=env)

    def state(self) -> dict[str, Any]:
        """Return the status file, empty before there is one."""
        try:
            read: dict[str, Any] = json.loads((self.folder / "status.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return read

    def wait_ready(self) -> None:
        """Wait until the guest runs."""
        self.wait((self.folder / "ready").exists, "no ready file")

    def wait(self, true: Callable[[], bool], otherwise: str) -> None:
        """Wait until something is true; fail at once when the launcher has ended instead."""
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE
        while not true():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{otherwise}: {self.end()}")
            time.sleep(0.02)

    def send(self, number: int = signal.SIGTERM) -> None:
        """Send the launcher a signal."""
        os.kill(self.pid(), number)

    def pid(self) -> int:
        """Return the launcher's pid; what wraps it either becomes it or has it as its only child."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        return int(children[0]) if self.wrap and children else self.process.pid

    def end(self) -> Ended:
        """Wait for the launcher's end and return what it left."""
        assert self.process is not None
        try:
            out, log = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, log = self.process.communicate()
            raise AssertionError(f"the launcher did not end: {out}{log}") from None
        text = (self.folder / "termination").read_text(encoding="utf-8")
        return Ended(self.process.returncode, out, log, json.loads(text) if text else {})

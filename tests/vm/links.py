"""The two ways to talk to a worker: QEMU's control socket and ssh."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional, Union

PATIENCE = 600.0  # twenty times a quiet boot: machines that run tests are busy


def wait_for(what: str, ready: Callable[[], bool], alive: Callable[[], bool] = lambda: True, seconds: float = PATIENCE) -> None:
    """Poll until ready() is true; raise TimeoutError naming what was waited for, RuntimeError when alive() turns false."""
    end = time.monotonic() + seconds
    while not ready():
        if not alive():
            raise RuntimeError(f"the worker's QEMU ended while we waited for {what}")
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


class QmpError(RuntimeError):
    """QEMU refused a command."""


class Qmp:
    """A client of QEMU's machine protocol; events are dropped."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._lock = threading.Lock()
        self._answer()
        self("qmp_capabilities")

    def __call__(self, command: str, arguments: Optional[Mapping[str, Any]] = None) -> Any:
        """Run a command and return its value."""
        request = {"execute": command, "arguments": dict(arguments or {})}
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = self._answer()
        if "error" in answer:
            raise QmpError(f"{command} {dict(arguments or {})}: {answer['error'].get('desc')}")
        return answer.get("return")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def _answer(self) -> dict[str, Any]:
        while True:
            line = self._lines.readline()
            if not line:
                raise QmpError("QEMU closed its control socket")
            message: dict[str, Any] = json.loads(line)
            if "event" not in message:
                return message


class Ssh:
    """Root's shell on the worker, over one shared connection."""

    def __init__(self, port: int, key: Path, sockets: Path) -> None:
        self.port, self.key = port, key
        common = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR", "BatchMode": "yes"}
        self.common = [part for name, value in common.items() for part in ("-o", f"{name}={value}")]
        shared = {"ControlMaster": "auto", "ControlPersist": "600", "ControlPath": sockets / "ssh", "ConnectTimeout": "30"}
        options = [part for name, value in shared.items() for part in ("-o", f"{name}={value}")]
        self._options = [*self.common, *options, "-i", str(key)]

    def run(self, command: str, data: Optional[Union[str, bytes]] = None) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command there; data goes to its standard input."""
        fed = data.encode() if isinstance(data, str) else data or b""
        line = ["ssh", *self._options, "-p", str(self.port), "root@127.0.0.1", command]
        return subprocess.run(line, input=fed, capture_output=True, check=False)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a program there and return it, to be talked to by its standard input and output; whoever calls ends it."""
        line = ["ssh", *self._options, "-p", str(self.port), "root@127.0.0.1", command]
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def copy(self, source: str, target: str) -> None:
        """Copy a file or folder; one of the two starts with "worker:"."""
        ends = [end.replace("worker:", "root@127.0.0.1:", 1) if end.startswith("worker:") else end for end in (source, target)]
        line = ["scp", "-q", "-r", *self._options, "-P", str(self.port), *ends]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"copy {source} to {target}: {done.stderr.strip()}")

    def forget(self) -> None:
        """End the shared connection: after a reboot it would only hang."""
        line = ["ssh", *self._options, "-p", str(self.port), "-O", "exit", "root@127.0.0.1"]
        subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def greets(self) -> bool:
        """Tell whether sshd itself answers: user networking accepts connections long before it does."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as link:
                return link.recv(4) == b"SSH-"
        except OSError:
            return False


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""Child processes of the harness: started with a log file, ended by pid, never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")  # becomes the program: same pid


class Children:
    """The processes that one part of the cluster consists of; `end` ends them, the last started first."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program of its own session whose output goes to logs/NAME.log; it is killed should this process die."""
        with open(self.logs / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                [*DIE_WITH_PARENT, *(str(part) for part in command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )
        self.running[name] = child
        return child

    def wait_for(self, what: str, ready: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait until ready() says so; a child that ended meanwhile, or too long a wait, is an error with the log's end."""
        limit = time.monotonic() + seconds
        while not ready():
            for name, child in self.running.items():
                if child.poll() is not None:
                    raise RuntimeError(f"{name} ended with {child.returncode} before {what}:\n{self.tail(name)}")
            if time.monotonic() > limit:
                logs = "\n".join(f"--- {name}\n{self.tail(name)}" for name in self.running)
                raise TimeoutError(f"no {what} after {seconds:.0f} s:\n{logs}")
            time.sleep(0.1)

    def tail(self, name: str, lines: int = 15) -> str:
        """Return the last lines of a child's log."""
        return "\n".join((self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def stop(self, name: str, sign: int = signal.SIGTERM, grace: float = 20.0) -> None:
        """End one child and wait for it; after `grace` seconds it is killed."""
        child = self.running.pop(name, None)
        if child is not None:
            end(child, sign, grace)

    def end(self) -> None:
        """End all children."""
        for name in reversed(list(self.running)):
            self.stop(name)


def end(child: subprocess.Popen[bytes], sign: int = signal.SIGTERM, grace: float = 20.0) -> None:
    """Signal a child and wait for its end; kill it when it does not go."""
    if child.poll() is None:
        child.send_signal(sign)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def free_ports(count: int) -> list[int]:
    """Return free TCP ports of 127.0.0.1, all different."""
    sockets = [socket.socket() for dummy in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def child_of(pid: int) -> int | None:
    """Return the pid of the one child of a process, None while it has none (the kernel's children file needs a build option)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                return int(entry.name)
    return None

"""The device plugin as a process of its own over a made host, and the Go client that stands in for its kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, final

from ..harness import programs
from .host import FakeHost
from .pod import MODULE_UTILS

# `hostdev device-plugin` for another root; cli is what the program imports first
_MAIN = """
import logging, sys
from pathlib import Path
from hostdev import cli
from hostdev.kube.options import PluginOptions
from hostdev.kube.service import run
from hostdev.root import Root
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
base, folder, seconds = sys.argv[1:]
places = {"run_folder": base + "/run", "config": base + "/etc/devices.json", "grants": base + "/g", "release": base + "/lib/current"}
raise SystemExit(run(Root(Path(base)), PluginOptions(plugin_folder=folder, check_seconds=float(seconds), **places)))
"""
PATIENCE = 60.0


def command(host: FakeHost, folder: Path, python: str = sys.executable, check_seconds: float = 300.0) -> list[str]:
    """Return the command of the device plugin over a made host; the runtime has to be on its PYTHONPATH."""
    return [python, "-c", _MAIN, str(host.base), str(folder), str(check_seconds)]


@final
class PluginProcess:
    """The service of one made host; its lines are in plugin.log below the host. runtime: the folder in which `hostdev` lies."""

    def __init__(
        self,
        host: FakeHost,
        folder: Path,
        python: str = sys.executable,
        runtime: Path = MODULE_UTILS,
        env: Optional[Mapping[str, str]] = None,
        check_seconds: float = 300.0,
    ) -> None:
        self.log = host.base / "plugin.log"
        with self.log.open("ab") as out:
            environment = {**os.environ, "PYTHONPATH": str(runtime), **(env or {})}
            self.process = subprocess.Popen(command(host, folder, python, check_seconds), stdout=out, stderr=out, env=environment)

    def __enter__(self) -> PluginProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> int:
        """End the service as systemd does and return its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)


@final
class GoKubelet:
    """The Go client serving a plugin folder. `events`: every line that it printed, in order.

    A line is {"event": "serving" | "options" | "registered" | "list" | "answer" | "ended", "resource", "ns", ...}, and has either
    "response", a message with all its fields by their names in the .proto file, or "code" and "message" of a refusal.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        command = [str(programs.client()), "kubelet", "-folder", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()
        self.wait("its socket", lambda event: event["event"] == "serving")

    def __enter__(self) -> GoKubelet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> int:
        """End as a kubelet does, streams included; return the client's exit code."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._thread.join()
        return self._process.wait(PATIENCE)

    def wait(self, what: str, fits: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """Return the first event from number `since` on that fits; an assertion error naming what was waited for after a while."""
        limit = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                for event in self.events[since:]:
                    if fits(event):
                        return event
                since = len(self.events)
                rest = limit - time.monotonic()
                assert rest > 0 and self._process.poll() is None, f"no {what}; the last events: {str(self.events[-3:])[-2000:]}"
                self._changed.wait(min(rest, 1.0))

    def listed(self, resource: str, fits: Callable[[list[dict[str, Any]]], bool], since: int = 0) -> dict[str, Any]:
        """Return the first list of a resource, from event number `since` on, whose devices fit."""

        def is_it(event: dict[str, Any]) -> bool:
            return event["event"] == "list" and event["resource"] == resource and fits(event["response"]["devices"])

        return self.wait(f"such list of {resource}", is_it, since)

    def call(self, resource: str, method: str, request: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Call a method of the plugin of a resource and return what it answered: {"response"} or {"code", "message"}."""
        since = len(self.events)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"resource": resource, "method": method, "request": request or {}}) + "\n")
        self._process.stdin.flush()
        event = self.wait(f"answer to {method}", lambda event: event["event"] == "answer", since)
        assert (event["resource"], event["method"]) == (resource, method)
        return {key: event[key] for key in ("response", "code", "message") if key in event}

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

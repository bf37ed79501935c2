"""Adapter of plugin-lifecycle.json, PCI part: steps against the service and a stand-in kubelet."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import RESOURCE, PluginBench

SECTIONS = ("cases",)
_SERVED = "pci"
_UNITS = {"16": "A", "17": "B"}
_PATIENCE = 20.0
_CONFIGURED = {"version", "endpoint", "resource_name", "options"}
_KNOWN = {"registrations", "lists", "last_list", "alive", "stream_ended", "socket_file", "refused"}


class Run:
    """One case's service, and what its steps gave."""

    def __init__(self, bench: PluginBench) -> None:
        self.bench = bench
        self.refusal: str | None = None

    def start(self, *, kubelet: bool = True, lost: bool = False) -> None:
        """Start the service; with a kubelet, go on when it has its first list."""
        if lost:
            self.bench.node("16").unlink()
        if kubelet:
            self.bench.kubelet.start()
        self.bench.start()
        if kubelet:
            self._listed()

    def appear(self) -> None:
        """Let the kubelet come."""
        self.bench.kubelet.start()
        self._listed()

    def restart(self) -> None:
        """Restart the kubelet."""
        before = len(self.bench.kubelet.registrations)
        self.bench.kubelet.restart()
        until(lambda: len(self.bench.kubelet.registrations) > before, "a new registration")

    def allocate(self) -> None:
        """Ask for unit A, keeping the refusal."""
        try:
            self.bench.kubelet.allocate(["16"])
        except grpc.RpcError as error:
            self.refusal = str(error.details())

    def withdraw(self) -> None:
        """Take the entry out of the configuration."""
        self.bench.declare()
        if self.bench.service is not None:
            self.bench.service.reload()

    def remove_socket(self) -> None:
        """Remove the plugin's socket."""
        for name in self.bench.sockets():
            (self.bench.folder / name).unlink()

    def _listed(self) -> None:
        until(lambda: self.bench.kubelet.lists, "the first list")


STEPS: dict[str, Callable[[Run], object]] = {
    "start": Run.start,
    "start without node A": partial(Run.start, lost=True),
    "start without kubelet": partial(Run.start, kubelet=False),
    "kubelet appears": Run.appear,
    "kubelet restarts": Run.restart,
    "remove node A": lambda run: run.bench.node("16").unlink(),
    "create node A": lambda run: run.bench.host.node("16"),
    "remove plugin socket": Run.remove_socket,
    "Allocate A": Run.allocate,
    "stop": Run.withdraw,
}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per kind; kinds that are not served, and steps that mean nothing to PCI, are not known."""
    for case in document.get("cases", ()):
        want = case.get("want", case.get("expected"))
        form = isinstance(want, list) or (isinstance(want, dict) and (set(want) <= _KNOWN or set(want) <= _CONFIGURED))
        known = form and "by_hand" not in case and set(case.get("steps", ("?",))) <= set(STEPS)
        for kind in case["kinds"]:
            yield Case(f"{case['name']}, {kind}", partial(_check, case, want) if known and kind == _SERVED else None)


def _check(case: dict[str, Any], want: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="l") as folder:
        run = Run(PluginBench(Path(folder), resource=case.get("resource", RESOURCE)))
        try:
            for step in case["steps"]:
                STEPS[step](run)
            _settle(run, want)
        finally:
            run.bench.stop()
            run.bench.kubelet.stop()


def _settle(run: Run, want: Any) -> None:
    """Compare as soon as it agrees; no time is asserted, so a difference has to last."""
    limit = time.monotonic() + _PATIENCE
    while _got(run, want) != want and time.monotonic() < limit:
        time.sleep(0.05)
    same(_got(run, want), want)


def _got(run: Run, want: Any) -> Any:
    kubelet = run.bench.kubelet
    lists = [{_UNITS[group]: health for group, health in one.items()} for one in kubelet.lists]
    lists = [one for number, one in enumerate(lists) if number == 0 or lists[number - 1] != one]
    if isinstance(want, list):
        return [f"all {next(iter(one.values()))}" if len(set(one.values())) == 1 else str(one) for one in lists]
    if set(want) & {"version", "endpoint"}:
        return _register(run, want)
    found = {
        "registrations": len(kubelet.registrations),
        "lists": lists,
        "last_list": lists[-1] if lists else None,
        "alive": run.bench.alive,
        "stream_ended": kubelet.ended.is_set(),
        "socket_file": bool(run.bench.sockets()),
        "refused": want["refused"] if run.refusal and want.get("refused", "\0") in run.refusal else run.refusal,
    }
    return {key: found[key] for key in want}


def _register(run: Run, want: dict[str, Any]) -> dict[str, Any]:
    request = run.bench.kubelet.registrations[0]
    options = {name: getattr(request.options, name) for name in ("pre_start_required", "get_preferred_allocation_available")}
    found = {"version": request.version, "endpoint": request.endpoint, "resource_name": request.resource_name, "options": options}
    return {key: found[key] for key in want}

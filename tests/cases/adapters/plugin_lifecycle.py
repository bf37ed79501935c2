"""Adapter of plugin-lifecycle.json: steps against the service and a stand-in kubelet, for every kind that is served."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import MDEV, NODE, PCI, USB
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import PluginBench

SECTIONS = ("cases",)
_SERVED = {"pci": PCI, "mdev": MDEV, "usb": USB, "generic": NODE}
_PATIENCE, _REACTION = 20.0, 5.0
_CONFIGURED = {"version", "endpoint", "resource_name", "options"}
_KNOWN = {"registrations", "lists", "last_list", "alive", "stream_ended", "socket_file", "refused", "stopped", "kept"}
_TOGETHER = "start all together"


class Run:
    """One case's service, and what its steps gave. Steps about A mean the unit of the first kind."""

    def __init__(self, bench: PluginBench, kinds: dict[str, str]) -> None:
        """Begin with a bench that stands; kinds: the case's names for the kinds of the bench."""
        self.bench = bench
        self.kinds = kinds
        self.stand = next(iter(bench.stands.values()))
        self.ids = bench.ids(next(iter(bench.stands)))
        self.units = dict(zip(self.ids, "AB"))
        self.refusal: str | None = None

    @property
    def node(self) -> Path:
        """Return where A's node is."""
        return self.bench.host.base / self.stand.nodes[0].lstrip("/")

    def start(self, *, kubelet: bool = True, lost: bool = False) -> None:
        """Start the service; with a kubelet, go on when it has the first list of every kind."""
        if lost:
            self.node.unlink()
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
        registered, listed = len(self.bench.kubelet.registrations), len(self.bench.kubelet.lists)
        self.bench.kubelet.restart()
        until(lambda: len(self.bench.kubelet.registrations) > registered, "a new registration")
        until(lambda: len(self.bench.kubelet.lists) > listed, "a list for the new kubelet")

    def allocate(self) -> None:
        """Ask for unit A, keeping the refusal."""
        try:
            self.bench.kubelet.allocate([self.ids[0]])
        except grpc.RpcError as error:
            self.refusal = str(error.details())

    def keep(self, *kinds: str) -> None:
        """Take all but these kinds out of the configuration."""
        self.bench.serve(*kinds)
        if self.bench.service is not None:
            self.bench.service.reload()

    def remove_socket(self) -> None:
        """Remove the plugin's socket."""
        for name in self.bench.sockets():
            (self.bench.folder / name).unlink()

    def change(self, work: Callable[[Run], object]) -> None:
        """Do what changes A's health, and let it be told before the next step: two changes in a moment may be told as one."""
        before = len(self.bench.kubelet.lists)
        work(self)
        limit = time.monotonic() + _REACTION
        while len(self.bench.kubelet.lists) == before and time.monotonic() < limit:
            time.sleep(0.02)

    def _listed(self) -> None:
        until(lambda: len(self.bench.kubelet.lists_of) == len(self.bench.stands), "the first list")


def _changing(work: Callable[[Run], object]) -> Callable[[Run], object]:
    return lambda run: run.change(work)


STEPS: dict[str, Callable[[Run], object]] = {
    "start": Run.start,
    _TOGETHER: Run.start,
    "start without node A": partial(Run.start, lost=True),
    "start without kubelet": partial(Run.start, kubelet=False),
    "kubelet appears": Run.appear,
    "kubelet restarts": Run.restart,
    "remove node A": _changing(lambda run: run.node.unlink()),
    "create node A": _changing(lambda run: run.stand.renew(run.bench.host, run.stand.nodes[0])),
    "remove plugin socket": Run.remove_socket,
    "Allocate A": Run.allocate,
    "stop": Run.keep,
    "take the pci, mdev and usb entries out": lambda run: run.keep(*(set(run.bench.stands) - {PCI, MDEV, USB})),
}
# a device that is plugged in again has another number, and so another node
USB_STEPS: dict[str, Callable[[Run], object]] = {
    "unplug A": _changing(lambda run: run.bench.host.unplug(run.ids[0])),
    "plug A in": _changing(lambda run: run.bench.host.usb(run.ids[0], device=9)),
}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per kind, or one for all together; kinds that are not served, and steps that mean nothing, are not known."""
    for case in document.get("cases", ()):
        want, steps = case.get("want", case.get("expected")), case.get("steps", ("?",))
        form = isinstance(want, list) or (isinstance(want, dict) and (set(want) <= _KNOWN or set(want) <= _CONFIGURED))
        for kinds in [case["kinds"]] if _TOGETHER in steps else [[kind] for kind in case["kinds"]]:
            meant = {**STEPS, **(USB_STEPS if kinds == ["usb"] else {})}
            known = form and "by_hand" not in case and set(steps) <= set(meant) and set(kinds) <= set(_SERVED)
            yield Case(
                f"{case['name']}, {' '.join(kinds)}", partial(_check, case, kinds, [meant[one] for one in steps], want) if known else None
            )


def _check(case: dict[str, Any], kinds: Sequence[str], steps: Sequence[Callable[[Run], object]], want: Any) -> None:
    names = {kind: _SERVED[kind] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="l") as folder:
        run = Run(PluginBench(Path(folder), tuple(names.values()), case.get("resource", "")), names)
        try:
            for step in steps:
                step(run)
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
    lists = [{run.units.get(one, one): health for one, health in listed.items()} for listed in kubelet.lists]
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
        "stopped": sorted(kind for kind, listed in _served(run).items() if listed == {}),
        "kept": sorted(kind for kind, listed in _served(run).items() if listed),
    }
    return {key: found[key] for key in want}


def _served(run: Run) -> dict[str, dict[str, str] | None]:
    """Return by kind the last list: empty only when its stream has ended behind it, none while it has not."""
    found: dict[str, dict[str, str] | None] = {}
    for kind, name in run.kinds.items():
        resource = run.bench.resources[name]
        last = run.bench.kubelet.lists_of.get(resource, [{}])[-1]
        found[kind] = last if bool(last) == (resource in run.bench.kubelet.streams) else None
    return found


def _register(run: Run, want: dict[str, Any]) -> dict[str, Any]:
    request = run.bench.kubelet.registrations[0]
    options = {name: getattr(request.options, name) for name in ("pre_start_required", "get_preferred_allocation_available")}
    found = {"version": request.version, "endpoint": request.endpoint, "resource_name": request.resource_name, "options": options}
    return {key: found[key] for key in want}

"""The device plugin as one process: every resource's server, the grant sockets, and the loop that keeps them true."""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from ..device.declaration import Declaration
from ..device.faults import Busy
from ..device.handover import handover_folder
from ..device.inventory import SERVED_BY_KUBEVIRT, Skipped
from ..device.offer import Offer
from ..root import Root
from .config import Configuration
from .elsewhere import Elsewhere
from .held import held_places
from .iommufd import HandOver, open_iommu
from .kinds import find, find_skipped
from .ledger import read_ledger
from .metrics import Collector, Tally, serve
from .notify import Pulse, notify
from .options import PluginOptions, load_declaration
from .past import Past
from .places import Places
from .plugin import require
from .process import alone, signals
from .reasons import Reasons
from .roster import changes, merge, retained
from .servers import Servers
from .state import StateFile, state_text
from .virthandler import VirtHandler
from .waking import DEVICE, Waker
from .watch import MERGE_SECONDS, DeviceWatch, FolderWatch

log = logging.getLogger(__name__)

# after a look that changed nothing: a burst of events costs at most so many looks
_REST_SECONDS = 0.02
# while something cannot be looked at
_AGAIN_SECONDS = 1.0


class Service:
    """All resources of one declaration; `refresh` looks at what is offered once, `run` does it for ever."""

    def __init__(
        self,
        root: Root,
        options: PluginOptions,
        load: Callable[[str], Declaration] = load_declaration,
        opener: Callable[[Root], int] = open_iommu,
    ) -> None:
        """Read the declaration; raises its faults, as there is nothing to serve without it."""
        require()
        self._root = root
        self._options = options
        self._config = Configuration(Path(options.config), options.last_good, load)
        # as found, and as told: with what else keeps a unit from being used
        self._found: tuple[Offer, ...] = ()
        self._offers: tuple[Offer, ...] = ()
        self._virt_handler = VirtHandler(Path(options.plugin_folder), options.kubelet, options.virt_handler, options.check_seconds)
        self._left: frozenset[str] = frozenset()
        self._served: tuple[frozenset[str], Declaration] = (frozenset(), Declaration())
        self._own = Declaration()
        self._reasons = Reasons(self._find_skipped, lambda: {(one.resource, one.name) for one in self._offers})
        self._changed = False
        self._state = StateFile(options.state)
        self._faults: tuple[str, ...] = ()
        self._grants = Places(root, Path(options.plugin_folder), options.grants)
        self._handover = HandOver(root, opener)
        self._tally = Tally()
        self._past = Past(Path(options.plugin_folder))
        self._looking = threading.Lock()
        self._ended = False
        self.waker = Waker()
        ask = partial(read_ledger, Root(), options.kubelet_root, options.plugin_folder)
        self._elsewhere = Elsewhere(Path(options.plugin_folder), self._wake, ask)
        self._servers = Servers(root, options, self._handover, self._tally, lambda: self._look()[1], self._wake)

    def reload(self) -> None:
        """Take the configuration file as it is now; the former declaration stays when the file is wrong or gone."""
        before = self._config.declaration
        self._config.read_again()
        self._found = retained(self._found, before, self._config.declaration)
        self._reasons.ask(time.monotonic())
        self.waker.set()

    def refresh(self) -> Optional[float]:
        """Look, tell the kubelet what changed, register what is not; return the seconds until something is due, None for none."""
        before = self._offers
        self._left, wait = self._virt_handler.serves((entry.resource for entry in self._config.declaration.served), time.monotonic())
        self._found, self._offers = self._look()
        self._servers.compose({entry.resource: entry.kind for entry in self._mine().served}, self._offers)
        lines = changes(before, self._offers)
        self._changed = bool(lines)
        for line in lines:
            log.info("%s", line)
        if lines and self.waker.since is not None:
            self._tally.updated(time.monotonic() - self.waker.since)
        self._past.take(self._offers, changed=bool(lines))
        now = time.monotonic()
        due = [*self._servers.step(now), _AGAIN_SECONDS if self._faults else None, wait, self._elsewhere.ask(self._found, now)]
        if lines:
            self._reasons.ask(now)
        due.append(self._reasons.find(now, registered=all(self._servers.registered().values())))
        self._state.put(state_text(self._offers, self._reasons.skipped, self._servers.told(), self._options.grants, self._past))
        return min((wait for wait in due if wait is not None), default=None)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until stopping() is true, or until another release of the program is the current one.

        A changed configuration is read again without being told: the play that wrote it may have been interrupted.
        """
        options = self._options
        release = os.path.realpath(options.release)
        config, link = Path(options.config), Path(options.release)
        # of the kubelet's folder sockets only: it writes its checkpoint there at every allocation
        watched = {self._root.dev("vfio"): "*", Path(options.plugin_folder): "*.sock", config.parent: config.name, link.parent: link.name}
        folders, devices, pulse = FolderWatch(watched, self.waker), DeviceWatch(self.waker), Pulse(options.lock)
        told = False
        folder = handover_folder(options.grants)
        self._handover.restore(folder, [place.folder for place in held_places(Path(options.plugin_folder), folder) or ()])
        while not stopping():
            looked = time.monotonic()
            folders.arm(self._nodes())
            devices.keep()
            if os.path.realpath(options.release) != release:
                log.info("%s points to another release: ending, to be started from there", options.release)
                break
            if self._config.changed:
                self.reload()
            due = self.refresh()
            if not told:
                told = True
                notify("READY=1")
            rest = MERGE_SECONDS if self._changed else _REST_SECONDS
            longest = min(folders.longest_wait, options.check_seconds, float("inf") if due is None else due)
            if DEVICE in pulse.wait(self.waker, longest, looked + rest):
                # a declared device may have come, or be skipped for another reason now
                self._reasons.ask(time.monotonic())
        notify("STOPPING=1")

    def stop(self) -> None:
        """End all servers and remove their sockets; grant folders stay for the containers that have them."""
        self._servers.stop()
        with self._looking:
            # an Allocate call that is still on its way must not make again what is removed here
            self._ended = True
            self._grants.stop()
        self._handover.stop()
        self._state.remove()

    def serve_metrics(self) -> Callable[[], None]:
        """Serve what is counted on the address of the options; return what ends that."""

        def units() -> tuple[tuple[Offer, ...], tuple[Skipped, ...]]:
            return self._offers, self._reasons.skipped

        return serve(self._options.metrics, Collector(self._tally, self._grants.counts, units, self._servers.registered))

    def _wake(self) -> None:
        self.waker.set()

    def _look(self) -> tuple[tuple[Offer, ...], tuple[Offer, ...]]:
        """Return the units as they are found now, and as they are told; an Allocate call may look while the loop does."""
        with self._looking:
            if self._ended:
                raise Busy(what="look at the devices", subject="the device plugin", cause="it is ending", hint="try again")
            found = self._find()
            return found, self._grants.granted(self._elsewhere.shown(found))

    def _find(self) -> tuple[Offer, ...]:
        """Return the units; what cannot be looked at keeps the last ones, and is told once."""
        declaration = self._mine()
        kinds = {(entry.resource, entry.kind) for entry in declaration.served}
        found = find(self._root, declaration, self._found)
        for fault in found.faults:
            if fault not in self._faults:
                log.error("%s; the last state stays", fault)
        self._faults = found.faults
        return merge(self._root, self._found, found, lambda resource, kind: (resource, kind) in kinds)

    def _mine(self) -> Declaration:
        """Return the declaration without what KubeVirt's virt-handler serves on this node (design decision 15)."""
        wanted = (self._left, self._config.declaration)
        if self._served != wanted:
            self._served = wanted
            self._own = Declaration(tuple(entry for entry in self._config.declaration.served if entry.resource not in self._left))
        return self._own

    def _nodes(self) -> list[Path]:
        """Return the device nodes whose coming and going matters, of what is declared and of what is offered."""
        declared = [entry.node.path for entry in self._config.declaration.served if entry.node]
        return [self._root.at(node) for node in dict.fromkeys([*declared, *(node for one in self._offers for node in one.required)])]

    def _find_skipped(self) -> tuple[Skipped, ...]:
        return (*find_skipped(self._root, self._mine(), self._found), *self._left_to_kubevirt())

    def _left_to_kubevirt(self) -> list[Skipped]:
        detail, hint = "KubeVirt's virt-handler serves this resource on this node", "take the entry out of the declaration"
        left = [entry for entry in self._config.declaration.served if entry.resource in self._left]
        return [Skipped(" or ".join(entry.wanted), entry.resource, SERVED_BY_KUBEVIRT, detail, hint) for entry in left]


def run(root: Root, options: PluginOptions) -> int:
    """Serve until SIGTERM or SIGINT, reading the configuration again at SIGHUP; return the exit code 0.

    Faults of the configuration, and Busy for a second instance, are raised before anything is served.
    """
    with alone(options.lock):
        # what an earlier service left is not what this one serves, which may even be unable to start
        StateFile(options.state).remove()
        service = Service(root, options)
        end_metrics = service.serve_metrics() if options.metrics else None
        with signals(service.reload, service.waker.set) as stopping:
            try:
                service.run(stopping)
            finally:
                service.stop()
                if end_metrics:
                    end_metrics()
    return 0

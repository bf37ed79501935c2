"""The device plugin as one process: every resource's server, the grant sockets, and the loop that keeps them true."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from ..device.declaration import Declaration, Entry
from ..device.faults import Fault
from ..device.handover import handover_folder, handover_path
from ..device.inventory import SERVED_BY_KUBEVIRT, Skipped
from ..device.offer import NO_GRANT, Offer
from ..root import Root
from . import answers
from .allocation import Allocator, Ready
from .checkpoint import FILE as STORE
from .config import Configuration, Stamp, stamp_of
from .grant import GrantServer, Place
from .held import held_places
from .iommufd import HandOver, open_iommu
from .kinds import KINDS, Kind, find, find_skipped
from .metrics import Collector, Tally, serve
from .notify import notify
from .options import PluginOptions, load_declaration
from .past import Past
from .plugin import Server, Shelf, require
from .process import alone, signals
from .reasons import Reasons
from .registration import Registrar
from .roster import changes, merge, retained
from .state import StateFile, state_text
from .watch import DEVICE, MERGE_SECONDS, FolderWatch, Waker, watch_devices

log = logging.getLogger(__name__)

# after a look that changed nothing: a burst of events costs at most so many looks
_REST_SECONDS = 0.02


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
        self._shelves: dict[str, Shelf] = {}
        self._registrars: dict[str, Registrar] = {}
        self._offers: tuple[Offer, ...] = ()
        self._served: tuple[frozenset[str], Declaration] = (frozenset(), Declaration())
        self._own = Declaration()
        self._reasons = Reasons(self._find_skipped)
        self._changed = False
        self._state = StateFile(options.state)
        self._said = ""
        self._grants = GrantServer(root)
        self._handover = HandOver(root, opener)
        self._tally = Tally()
        self._past = Past(Path(options.plugin_folder))
        self._held: tuple[Optional[Stamp], Optional[list[Place]]] = (None, None)
        self._looking = threading.Lock()
        self.waker = Waker()

    def reload(self) -> None:
        """Take the configuration file as it is now; the former declaration stays when the file is wrong or gone."""
        before = self._config.declaration
        self._config.read_again()
        self._offers = retained(self._offers, before, self._config.declaration)
        self._reasons.ask(time.monotonic())
        self.waker.set()

    def refresh(self) -> Optional[float]:
        """Look, tell the kubelet what changed, register what is not; return the seconds until something is due, None for none."""
        before = self._offers
        self._offers = self._look()
        self._compose()
        lines = changes(before, self._offers)
        self._changed = bool(lines)
        for line in lines:
            log.info("%s", line)
        if lines and self.waker.since is not None:
            self._tally.updated(time.monotonic() - self.waker.since)
        self._past.take(self._offers, changed=bool(lines))
        now = time.monotonic()
        due = [one.step(now) for one in self._registrars.values()]
        if lines:
            self._reasons.ask(now)
        due.append(self._reasons.find(now, registered=all(one.registered for one in self._registrars.values())))
        self._write_state()
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
        folders = FolderWatch(watched, self.waker)
        watch_devices(self.waker)
        longest = min(folders.longest_wait, options.check_seconds)
        told = False
        folder = handover_folder(options.grants)
        self._handover.restore(folder, [place.folder for place in held_places(Path(options.plugin_folder), folder) or ()])
        while not stopping():
            looked = time.monotonic()
            folders.arm(self._nodes())
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
            if DEVICE in self.waker.wait(min(longest, due if due is not None else longest), looked + rest):
                # a declared device may have come, or be skipped for another reason now
                self._reasons.ask(time.monotonic())
        notify("STOPPING=1")

    def stop(self) -> None:
        """End all servers and remove their sockets; grant folders stay for the containers that have them."""
        for registrar in self._registrars.values():
            registrar.stop()
        self._registrars.clear()
        self._grants.stop()
        self._handover.stop()
        self._state.remove()

    def serve_metrics(self) -> Callable[[], None]:
        """Serve what is counted on the address of the options; return what ends that."""
        registrars = self._registrars
        collector = Collector(
            self._tally,
            self._grants.counts,
            lambda: (self._offers, self._reasons.skipped),
            lambda: {name: one.registered for name, one in list(registrars.items())},
        )
        return serve(self._options.metrics, collector)

    def _look(self) -> tuple[Offer, ...]:
        """Return the units as they are now, each with its grant; an Allocate call may look while the loop does."""
        with self._looking:
            return self._granted(self._found())

    def _found(self) -> tuple[Offer, ...]:
        """Return the units; what cannot be read leaves the last ones, and is told once."""
        declaration = self._mine()
        kinds = {(entry.resource, entry.kind) for entry in declaration.served}
        try:
            found = find(self._root, declaration, self._offers)
        except (Fault, OSError) as fault:
            if str(fault) != self._said:
                log.error("%s; the last state stays", fault)  # noqa: TRY400
            self._said = str(fault)
            return self._offers
        self._said = ""
        return merge(self._root, self._offers, found, lambda resource, kind: (resource, kind) in kinds)

    def _mine(self) -> Declaration:
        """Return the declaration without what KubeVirt's virt-handler serves on this node (design decision 15)."""
        left = frozenset(entry.resource for entry in self._config.declaration.served if self._kubevirts(entry))
        if self._served != (left, self._config.declaration):
            self._served = (left, self._config.declaration)
            self._own = Declaration(tuple(entry for entry in self._config.declaration.served if entry.resource not in left))
        return self._own

    def _kubevirts(self, entry: Entry) -> bool:
        domain, _slash, name = entry.resource.partition("/")
        return domain == "devices.kubevirt.io" and (Path(self._options.plugin_folder) / f"kubevirt-{name}.sock").exists()

    def _granted(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """Make the units' grant folders, before the units are offered: from then on their mounts have to exist."""
        failed = self._grants.serve({place.folder: place for place in map(self._place, offers)}.values(), self._stored())
        if not failed:
            return offers

        def troubled(offer: Offer) -> Offer:
            cause = failed.get(self._folder(offer))
            return replace(offer, trouble=cause, trouble_code=NO_GRANT) if cause else offer

        return tuple(map(troubled, offers))

    def _stored(self) -> Optional[list[Place]]:
        """Return the places that the kubelet's stored answers mount, whatever has become of the units."""
        folder = Path(self._options.plugin_folder)
        stamp = stamp_of(folder / STORE)
        if stamp != self._held[0]:
            self._held = (stamp, held_places(folder, self._options.grants))
        return self._held[1]

    def _place(self, offer: Offer) -> Place:
        kind = KINDS[offer.kind]
        unit = offer.name if kind.one_place else offer.id
        return Place(offer.resource, unit, self._folder(offer), offer.required, offer.optional, kind.vfio)

    def _folder(self, offer: Offer) -> str:
        return answers.folder_of(offer, self._options.grants)

    def _nodes(self) -> list[Path]:
        """Return the device nodes whose coming and going matters, of what is declared and of what is offered."""
        declared = [entry.node.path for entry in self._config.declaration.served if entry.node]
        return [self._root.at(node) for node in dict.fromkeys([*declared, *(node for one in self._offers for node in one.required)])]

    def _compose(self) -> None:
        wanted = {entry.resource: entry.kind for entry in self._mine().served}
        for resource in [one for one in self._registrars if one not in wanted]:
            log.info("%s: no longer served", resource)
            # an empty list first: the kubelet keeps the last list of a stream that merely ends
            self._shelves.pop(resource).put([])
            self._registrars.pop(resource).stop()
        for resource, kind in wanted.items():
            shelf = self._shelves.setdefault(resource, Shelf())
            shelf.put([offer for offer in self._offers if offer.resource == resource])
            if resource not in self._registrars:
                make = partial(self._server, resource, shelf, KINDS[kind])
                self._registrars[resource] = Registrar(resource, self._options.kubelet, make)

    def _server(self, resource: str, shelf: Shelf, kind: Kind) -> Server:
        grants, prefix = self._options.grants, self._options.host_prefix

        def look() -> dict[str, Offer]:
            self.waker.set()
            # with what is not there any more: whoever asks for it is told why
            return {offer.id: offer for offer in self._look() if offer.resource == resource}

        ready = Ready(lambda ids, offers: answers.container_answer(resource, ids, offers, grants, prefix))

        def prepare(ids: Sequence[str]) -> None:
            if ids:
                self._handover.prepare(handover_path(resource, ids, grants))

        def prepared(ids: Sequence[str], offers: Mapping[str, Offer]) -> bytes:
            prepare(ids)
            return ready(ids, offers)

        answer, each = (prepared, prepare) if kind.handover else (ready, None)
        allocator = Allocator(self._root, resource, shelf.offers, look, answer, self._tally.allocations)
        folder = Path(self._options.plugin_folder)
        return Server(resource, folder, shelf, allocator, self.waker.set, prefer=kind.prefers, prepare=each)

    def _find_skipped(self) -> tuple[Skipped, ...]:
        return (*find_skipped(self._root, self._mine()), *self._left_to_kubevirt())

    def _left_to_kubevirt(self) -> list[Skipped]:
        detail, hint = "KubeVirt's virt-handler serves this resource on this node", "take the entry out of the declaration"
        left = [entry for entry in self._config.declaration.served if self._kubevirts(entry)]
        return [Skipped(" or ".join(entry.wanted), entry.resource, SERVED_BY_KUBEVIRT, detail, hint) for entry in left]

    def _write_state(self) -> None:
        served = [{"resource": one.resource, "socket": one.socket, "registered": one.registered} for one in self._registrars.values()]
        self._state.put(state_text(self._offers, self._reasons.skipped, served, self._options.grants, self._past))


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

"""The device plugin as one process: every resource's server, the grant sockets, and the loop that keeps them true."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from ..device.declaration import Declaration
from ..device.faults import Fault
from ..device.inventory import Inventory
from ..root import Root, remove_file, write_file
from . import answers
from .answers import Offer
from .grant import GrantServer
from .notify import notify
from .offers import changes, read_offers, resources_of, state_dict
from .options import PluginOptions, load_declaration
from .plugin import Server, Shelf, require
from .registration import Registrar
from .watch import FolderWatch, Waker, watch_devices

log = logging.getLogger(__name__)


class Service:
    """All resources of one declaration; `refresh` looks at everything once, `run` does it for ever."""

    def __init__(self, root: Root, options: PluginOptions, load: Callable[[str], Declaration] = load_declaration) -> None:
        """Read the declaration; raises its faults, as there is nothing to serve without it."""
        require()
        self._root = root
        self._options = options
        self._load = load
        self._config = _stamp(options.config)
        self._declaration = load(options.config)
        self._shelves: dict[str, Shelf] = {}
        self._registrars: dict[str, Registrar] = {}
        self._offers: list[Offer] = []
        self._inventory = Inventory()
        self._written = ""
        self._grants = GrantServer(root, options.grants)
        self.waker = Waker()

    def reload(self) -> None:
        """Take the configuration file as it is now; the former declaration stays when the file is wrong or gone."""
        self._config = _stamp(self._options.config)
        try:
            self._declaration = self._load(self._options.config)
            log.info("read %s again", self._options.config)
        except Fault as fault:
            log.error("%s; the former declaration stays", fault.text())  # noqa: TRY400
        self.waker.set()

    def refresh(self) -> Optional[float]:
        """Look, tell the kubelet what changed, register what is not; return the seconds until something is due, None for none."""
        before = self._offers
        try:
            found, self._inventory = read_offers(self._root, self._declaration)
            # the folders come first: from the moment a unit is offered its mount has to exist
            self._offers = self._grants.serve(found)
        except (Fault, OSError) as fault:
            log.error("%s; the last state stays", fault)  # noqa: TRY400
        self._compose()
        for line in changes(before, self._offers):
            log.info("%s", line)
        now = time.monotonic()
        due = [wait for wait in (one.step(now) for one in self._registrars.values()) if wait is not None]
        self._write_state()
        return min(due) if due else None

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until stopping() is true, or until another release of the program is the current one.

        A changed configuration is read again without being told: the play that wrote it may have been interrupted.
        """
        options = self._options
        release = os.path.realpath(options.release)
        watched = [self._root.dev("vfio"), *(Path(place) for place in (options.plugin_folder, os.path.dirname(options.config)))]
        folders = FolderWatch([*watched, Path(options.release).parent], self.waker)
        watch_devices(self.waker)
        longest = min(folders.longest_wait, options.check_seconds)
        told = False
        while not stopping():
            looked = time.monotonic()
            folders.arm()
            if os.path.realpath(options.release) != release:
                log.info("%s points to another release: ending, to be started from there", options.release)
                break
            if _stamp(options.config) != self._config:
                self.reload()
            due = self.refresh()
            if not told:
                told = True
                notify("READY=1")
            self.waker.wait(min(longest, due if due is not None else longest), looked)
        notify("STOPPING=1")

    def stop(self) -> None:
        """End all servers and remove their sockets; grant folders stay for the containers that have them."""
        for registrar in self._registrars.values():
            registrar.stop()
        self._registrars.clear()
        self._grants.stop()
        remove_file(self._options.state)

    def _compose(self) -> None:
        wanted = resources_of(self._declaration)
        for resource in [one for one in self._registrars if one not in wanted]:
            log.info("%s: no longer declared", resource)
            # an empty list first: the kubelet keeps the last list of a stream that merely ends
            self._shelves.pop(resource).put([])
            self._registrars.pop(resource).stop()
        for resource in wanted:
            shelf = self._shelves.setdefault(resource, Shelf())
            shelf.put([offer for offer in self._offers if offer.unit.resource == resource])
            if resource not in self._registrars:
                self._registrars[resource] = Registrar(resource, self._options.kubelet, self._maker(resource, shelf))

    def _maker(self, resource: str, shelf: Shelf) -> Callable[[], Server]:
        def answer(requests: List[List[str]]) -> List[Dict[str, Any]]:
            offers, _inventory = read_offers(self._root, self._declaration)
            mine = {offer.unit.group: offer for offer in offers if offer.unit.resource == resource}
            made = answers.allocate(resource, requests, mine, self._options.grants, self._options.host_prefix)
            log.info("%s: allocated %s", resource, " ".join(",".join(ids) for ids in requests))
            return made

        return lambda: Server(resource, Path(self._options.plugin_folder), shelf, answer, self.waker.set)

    def _write_state(self) -> None:
        served = [{"resource": one.resource, "socket": one.socket, "registered": one.registered} for one in self._registrars.values()]
        text = json.dumps(state_dict(self._offers, self._inventory, served, self._options.grants), indent=1) + "\n"
        if text != self._written:
            write_file(self._options.state, text)
            self._written = text


def _stamp(path: str) -> Optional[tuple[int, int, int]]:
    """Return what changes when a file is replaced or written, None when it is absent."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def run(root: Root, options: PluginOptions) -> int:
    """Serve until SIGTERM or SIGINT, reading the configuration again at SIGHUP; return the exit code 0.

    Faults of the configuration are raised before anything is served.
    """
    service = Service(root, options)
    with _signals(service) as stopping:
        try:
            service.run(stopping)
        finally:
            service.stop()
    return 0


@contextmanager
def _signals(service: Service) -> Iterator[Callable[[], bool]]:
    ended: list[int] = []
    reload: list[int] = []

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        service.waker.set()

    def again(_number: int, _frame: object) -> None:
        reload.append(1)
        service.waker.set()

    def stopping() -> bool:
        if reload:
            reload.clear()
            service.reload()
        return bool(ended)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, again)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

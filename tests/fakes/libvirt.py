"""libvirt-python as far as the launcher uses it, without libvirt: domains are records, faults come as the script says.

Stands for the real module on machines without it; tests/guest compares names, values and signatures with the real one.
The script comes from the environment variable FAKE_LIBVIRT (JSON, the fields of Script).
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

VIR_DOMAIN_EVENT_ID_LIFECYCLE = 0
VIR_DOMAIN_EVENT_STARTED = 2
VIR_DOMAIN_EVENT_STOPPED = 5
VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN = 0
VIR_DOMAIN_EVENT_STOPPED_DESTROYED = 1
VIR_DOMAIN_EVENT_STOPPED_CRASHED = 2
VIR_DOMAIN_EVENT_STOPPED_FAILED = 5


class libvirtError(Exception):  # noqa: N801 - the real one's name
    """The one error of libvirt."""


@dataclass(frozen=True)
class Script:
    """What happens.

    refused: how often open fails first. create_error: what createXML says instead of starting. create_seconds: how long
    it takes. stops: the detail with which the domain stops by itself, after `after` seconds. early: the stop's event comes
    before createXML returns. obeys: a shutdown stops the domain. version: libvirt's own.
    """

    refused: int = 0
    create_error: str = ""
    create_seconds: float = 0.0
    stops: Optional[int] = None
    after: float = 0.0
    early: bool = False
    obeys: bool = True
    version: int = 12_009_000


def _given_script() -> Script:
    return Script(**json.loads(os.environ.get("FAKE_LIBVIRT", "{}")))


@dataclass
class _World:
    script: Script = field(default_factory=_given_script)
    events: queue.SimpleQueue[tuple[int, int]] = field(default_factory=queue.SimpleQueue)
    refused: int = 0
    defined: str = ""
    associated: bool = False


_world = _World()


class virDomain:  # noqa: N801
    """A running domain."""

    def __init__(self, conn: virConnect, _obj: Any = None) -> None:
        self._conn = conn

    def FDAssociate(self, name: str, files: list[int], flags: int = 0) -> int:  # noqa: N802
        assert (name, flags) == ("iommu", 0)
        os.fstat(files[0])
        _world.associated = True
        return 0

    def create(self) -> int:
        assert _world.associated
        self._conn.createXML(_world.defined)
        return 0

    def shutdown(self) -> int:
        if not _world.script.obeys:
            return 0
        _world.events.put((VIR_DOMAIN_EVENT_STOPPED, VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN))
        return 0

    def destroy(self) -> int:
        _world.events.put((VIR_DOMAIN_EVENT_STOPPED, VIR_DOMAIN_EVENT_STOPPED_DESTROYED))
        return 0


class virConnect:  # noqa: N801
    """A connection."""

    def __init__(self, _obj: Any = None) -> None:
        self.callbacks: list[Callable[..., None]] = []

    def domainEventRegisterAny(self, dom: Any, eventID: int, cb: Callable[..., None], opaque: Any) -> int:  # noqa: N802, N803
        assert dom is None
        assert eventID == VIR_DOMAIN_EVENT_ID_LIFECYCLE
        self.callbacks.append(lambda event, detail: cb(self, None, event, detail, opaque))
        return 0

    def getLibVersion(self) -> int:  # noqa: N802
        return _world.script.version

    def defineXML(self, xml: str) -> virDomain:  # noqa: N802
        _world.defined = xml
        return virDomain(self)

    def createXML(self, xmlDesc: str, flags: int = 0) -> virDomain:  # noqa: N802, N803
        assert xmlDesc.startswith("<domain")
        assert flags == 0
        script = _world.script
        time.sleep(script.create_seconds)
        if script.create_error:
            _world.events.put((VIR_DOMAIN_EVENT_STOPPED, VIR_DOMAIN_EVENT_STOPPED_FAILED))
            raise libvirtError(script.create_error)
        _world.events.put((VIR_DOMAIN_EVENT_STARTED, 0))
        if script.stops is not None and script.early:
            _world.events.put((VIR_DOMAIN_EVENT_STOPPED, script.stops))
            time.sleep(0.1)
        elif script.stops is not None:
            threading.Timer(script.after, _world.events.put, ((VIR_DOMAIN_EVENT_STOPPED, script.stops),)).start()
        return virDomain(self)


_connections: list[virConnect] = []


def registerErrorHandler(f: Callable[[Any, Any], None], ctx: Any) -> int:  # noqa: N802
    f(ctx, None)
    return 0


def virEventRegisterDefaultImpl() -> int:  # noqa: N802
    return 0


def virEventRunDefaultImpl() -> int:  # noqa: N802
    event, detail = _world.events.get()
    for connection in _connections:
        for callback in connection.callbacks:
            callback(event, detail)
    return 0


def open(name: Optional[str] = None) -> virConnect:  # noqa: A001
    assert name is not None
    assert name.startswith("qemu+unix:///session?socket=")
    if _world.refused < _world.script.refused:
        _world.refused += 1
        raise libvirtError("Failed to connect socket: Connection refused")
    _connections.append(virConnect())
    return _connections[-1]

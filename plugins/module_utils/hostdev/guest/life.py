"""The life of one domain: started by a thread, followed by the main thread, which also reaps children and hears signals.

The main thread never waits inside libvirt: a start may take a minute under emulation, in which libvirt itself waits for
children that only we can reap.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Union

from ..device.faults import Fault
from .children import reap
from .iommufd import GROUP
from .newer import refuse_newer, version_of
from .report import Outcome, Reporter
from .session import Session, fault_of

STOPPED_EARLY = Outcome("Failed", "Stopped", "asked to stop before the guest ran", 3)
FORCED = Outcome("Failed", "GracePeriodExpired", "the guest did not power off within its grace period and was destroyed", 3)
_PRESS_AGAIN = 5.0  # seconds; a guest that is still booting misses the first press of its power button
_DESTROY_PATIENCE = 10.0  # seconds for libvirt to end QEMU

# How a domain stopped (libvirt's virDomainEventStoppedDetailType) -> outcome.
_ENDS: Dict[str, Outcome] = {
    "SHUTDOWN": Outcome("Succeeded", "GuestShutdown", "the guest powered off", 0),
    "DESTROYED": Outcome("Failed", "GuestDestroyed", "the domain was destroyed from outside", 3),
    "CRASHED": Outcome("Failed", "GuestCrashed", "the guest crashed", 2),
    "FAILED": Outcome("Failed", "EmulatorFailed", "QEMU ended although the guest had not powered off", 2),
}


@dataclass(frozen=True)
class Started:
    """The domain runs."""

    domain: Any


@dataclass(frozen=True)
class Broken:
    """The domain could not be started."""

    fault: Fault


@dataclass(frozen=True)
class Stopped:
    """libvirt says that the domain has stopped, and how."""

    detail: int


@dataclass(frozen=True)
class Heard:
    """A signal came."""

    number: int


Event = Union[Started, Broken, Stopped, Heard]


def listen(inbox: queue.SimpleQueue[Event]) -> None:
    """Put SIGTERM, SIGINT and SIGCHLD into the inbox from now on (main thread only; SimpleQueue.put may be called by handlers)."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda number, _frame: inbox.put(Heard(number)))


@dataclass
class Life:
    """Follows one domain from its start to its end.

    library: the module libvirt. grace: seconds between the wish to stop and the end of patience. running: called with the
    domain once it runs. before_create: called right before libvirt is asked to create the domain. iommufd: an open
    descriptor of /dev/iommu for the domain.
    """

    library: Any
    session: Session
    xml: str
    name: str
    grace: float
    reporter: Reporter
    inbox: queue.SimpleQueue[Event]
    iommufd: Optional[int] = None
    before_create: Callable[[], None] = field(default=lambda: None)
    running: Callable[[Any], None] = field(default=lambda _domain: None)
    clock: Callable[[], float] = field(default=time.monotonic)
    _domain: Optional[Any] = None
    _deadline: Optional[float] = None
    _press_at: float = 0.0
    _stopped: Optional[int] = None
    _forced: bool = False

    def run(self) -> Outcome:
        """Start the domain and return how it ended; a Fault when it could not start or libvirt died."""
        threading.Thread(target=self._start, daemon=True).start()
        while True:
            outcome = self._handle(self._next())
            if outcome is not None:
                return outcome

    def _start(self) -> None:
        result: Event = Broken(Fault(what="start the guest", subject=self.name, cause="an error of our own; see the log above"))
        try:
            result = Started(self._create())
        except Fault as fault:
            result = Broken(fault)
        finally:
            self.inbox.put(result)

    def _create(self) -> Any:
        library = self.library
        connection = self.session.connect(library)
        connection.domainEventRegisterAny(None, library.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle, None)
        refuse_newer(self.xml, version_of(connection.getLibVersion()))
        self.before_create()
        try:
            return connection.createXML(self.xml, 0) if self.iommufd is None else self._create_with(connection, self.iommufd)
        except library.libvirtError as error:
            raise fault_of(error, "start the guest", self.name) from error

    def _create_with(self, connection: Any, iommufd: int) -> Any:
        # libvirt takes a descriptor for a domain that it knows already
        domain = connection.defineXML(self.xml)
        domain.FDAssociate(GROUP, [iommufd], 0)
        domain.create()
        return domain

    def _lifecycle(self, _connection: Any, _domain: Any, event: int, detail: int, _opaque: Any) -> None:
        if event == self.library.VIR_DOMAIN_EVENT_STOPPED:
            self.inbox.put(Stopped(detail))

    def _next(self) -> Optional[Event]:
        due = self.clock() + 1.0 if self._deadline is None else self._deadline if self._forced else min(self._deadline, self._press_at)
        try:
            return self.inbox.get(timeout=max(0.0, due - self.clock()))
        except queue.Empty:
            return None

    def _handle(self, event: Optional[Event]) -> Optional[Outcome]:
        self._reap()
        if isinstance(event, Started):
            return self._on_started(event.domain)
        if isinstance(event, Broken):
            raise event.fault
        if isinstance(event, Stopped):
            return self._on_stopped(event.detail)
        if isinstance(event, Heard) and event.number != signal.SIGCHLD:
            return self._on_wish(event.number)
        return self._on_time()

    def _reap(self) -> None:
        code = reap().get(self.session.pid)
        if code is not None:
            self.session.ended(code)

    def _on_started(self, domain: Any) -> Optional[Outcome]:
        self._domain = domain
        self.running(domain)
        return None if self._stopped is None else self._on_stopped(self._stopped)

    def _on_stopped(self, detail: int) -> Optional[Outcome]:
        if self._domain is None:
            # either a failed start, which createXML itself explains, or a guest that ended before createXML's answer came
            self._stopped = detail
            return None
        known = {getattr(self.library, f"VIR_DOMAIN_EVENT_STOPPED_{name}"): outcome for name, outcome in _ENDS.items()}
        outcome = known.get(detail, Outcome("Failed", "Stopped", f"the domain stopped (libvirt's detail {detail})", 2))
        return FORCED if self._forced and outcome.reason == "GuestDestroyed" else outcome

    def _on_wish(self, number: int) -> Optional[Outcome]:
        if self._domain is None:
            return STOPPED_EARLY
        if self._deadline is None:
            self.reporter.say(f"{signal.Signals(number).name}: asking the guest to power off, within {self.grace:.0f} s")
            self.reporter.state("Stopping")
            self._deadline = self.clock() + self.grace
            self._press()
        return None

    def _on_time(self) -> Optional[Outcome]:
        if self._deadline is None:
            return None
        now = self.clock()
        if now >= self._deadline:
            return self._force()
        if now >= self._press_at and not self._forced:
            self._press()
        return None

    def _press(self) -> None:
        self._press_at = self.clock() + _PRESS_AGAIN
        self._call("shutdown")

    def _force(self) -> Optional[Outcome]:
        if self._forced:
            return FORCED  # whoever ends our children ends QEMU
        self.reporter.say("the grace period is over: destroying the guest")
        self._forced = True
        self._deadline = self.clock() + _DESTROY_PATIENCE
        self._call("destroy")
        return None

    def _call(self, method: str) -> None:
        # in a thread: destroy returns only after we have reaped QEMU
        threading.Thread(target=self._call_now, args=(method,), daemon=True).start()

    def _call_now(self, method: str) -> None:
        try:
            getattr(self._domain, method)()
        except self.library.libvirtError as error:
            # the guest may have gone in this very moment: its event follows, or the deadline
            self.reporter.say(f"libvirt could not {method} the guest: {error}")

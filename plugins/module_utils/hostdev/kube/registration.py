"""Making a resource known to the kubelet, and again whenever the kubelet has forgotten it."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any, Callable, Optional

from ..device.faults import Fault
from .plugin import Identity, Server, identity
from .rpc import grpc
from .wire import DEVICE_PLUGIN, device_plugin

log = logging.getLogger(__name__)

_DEADLINE = 5.0
_STREAM_DUE = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# a proxy variable must not capture a unix target, and kubelets want a valid authority (kubernetes 107093)
_CHANNEL = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]


class Registration:
    """One call of Register on its way, over a channel of its own; the server's `woken` is called when it has ended.

    The server has to be serving already: the kubelet dials back before it answers.
    """

    def __init__(self, kubelet: Path, server: Server) -> None:
        """Begin; nothing waits here, for a kubelet that does not answer must not hold up what else the service does."""
        messages = device_plugin()
        self._subject = f"{server.resource} at {kubelet}"
        self._channel = grpc.insecure_channel(f"unix:{kubelet}", options=_CHANNEL)
        path = DEVICE_PLUGIN.path("Registration", "Register")
        call = self._channel.unary_unary(path, messages.encoder(), messages.decoder("Empty"))
        request = messages["RegisterRequest"](
            version=DEVICE_PLUGIN.package, endpoint=server.endpoint, resource_name=server.resource, options=server.options
        )
        self._call: Any = call.future(request, timeout=_DEADLINE)
        self._call.add_done_callback(lambda _call: server.woken())

    @property
    def ended(self) -> bool:
        """Return whether there is an answer, or none will come any more."""
        return bool(self._call.done())

    def check(self) -> None:
        """Raise a Fault with the kubelet's words when the ended call was refused."""
        if self._call.code() is not grpc.StatusCode.OK:
            cause = f"{self._call.code().name}: {self._call.details()}"
            raise Fault(what="register a resource", subject=self._subject, cause=cause, hint="it is tried again")

    def close(self) -> None:
        """Give up what is on its way."""
        self._channel.close()


class Registrar:
    """Keeps one resource served and registered; `step` is called whenever something may have changed.

    make: a new server each time, as a server that was stopped cannot start again.
    """

    def __init__(self, resource: str, kubelet: Path, make: Callable[[], Server]) -> None:
        """Begin unserved and unregistered."""
        self.resource = resource
        self._kubelet = kubelet
        self._make = make
        self._server: Optional[Server] = None
        self._asking: Optional[Registration] = None
        self._asked: Optional[Identity] = None
        self._known: Optional[Identity] = None
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._said = ""

    @property
    def registered(self) -> bool:
        """Return whether the kubelet took the registration and watches the list."""
        return self._known is not None and self._server is not None and self._server.watched

    @property
    def socket(self) -> str:
        """Return the socket's path; empty while there is none."""
        return str(self._server.path) if self._server is not None else ""

    @property
    def cause(self) -> str:
        """Return what was last said of why it is not registered; empty when nothing was."""
        return self._said.partition(": ")[2]

    def step(self, now: float) -> Optional[float]:
        """Do what is due at the monotonic time now; return the seconds until the next look, None when only events matter."""
        present = identity(self._kubelet)
        if present != self._asked:
            # another kubelet, or none: what the former one said counts no more
            self._forget()
            self._asked = present
        if present is None:
            self._say(f"{self.resource}: waiting for the kubelet: {self._kubelet} does not exist")
            return None
        if self._server is not None and not self._server.in_place:
            log.info("%s: %s was removed, the kubelet probably restarted", self.resource, self._server.path)
            self.stop()
        if self._asking is not None:
            return self._hear(self._asking, now) if self._asking.ended else None
        if self.registered:
            self._pause = _FIRST_PAUSE
            return None
        if now < self._not_before:
            return self._not_before - now
        return self._ask(now)

    def stop(self) -> None:
        """Stop serving and forget the registration."""
        self._forget()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _forget(self) -> None:
        if self._asking is not None:
            self._asking.close()
        self._asking, self._known, self._not_before = None, None, 0.0

    def _ask(self, now: float) -> Optional[float]:
        try:
            if self._server is None:
                server = self._make()
                server.start()
                self._server = server
        except (Fault, OSError) as fault:
            return self._failed(fault, now)
        self._asking = Registration(self._kubelet, self._server)
        return None

    def _hear(self, answer: Registration, now: float) -> float:
        self._asking = None
        answer.close()
        try:
            answer.check()
        except Fault as fault:
            return self._failed(fault, now)
        self._known, self._said = self._asked, ""
        log.info("%s: registered with the kubelet (%s)", self.resource, self.socket)
        # the kubelet opens the stream behind its answer, and never tries again by itself
        return 0.0 if self.registered else self._rest(max(_STREAM_DUE, self._pause), now)

    def _failed(self, fault: Exception, now: float) -> float:
        self._known = None
        self._say(f"{self.resource}: {fault}")
        return self._rest(self._pause * random.uniform(0.8, 1.2), now)  # noqa: S311

    def _rest(self, seconds: float, now: float) -> float:
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._not_before = now + seconds
        return seconds

    def _say(self, line: str) -> None:
        if line != self._said:
            log.warning("%s", line)
            self._said = line

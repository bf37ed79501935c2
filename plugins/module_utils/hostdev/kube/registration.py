"""Making a resource known to the kubelet, and again whenever the kubelet has forgotten it."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any, Callable, Optional

from ..device.faults import Fault, Unsupported
from .plugin import Identity, Server, identity
from .rpc import grpc
from .wire import DEVICE_PLUGIN, device_plugin

log = logging.getLogger(__name__)

_DEADLINE = 5.0
_STREAM_DUE = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# a proxy variable must not capture a unix target, and kubelets want a valid authority (kubernetes 107093)
_CHANNEL = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]


def register(kubelet: Path, endpoint: str, resource: str, prefer: bool = True) -> None:
    """Call Register once over a channel of its own; Fault with the kubelet's answer.

    prefer: the same as the server's own answer about GetPreferredAllocation.

    The server has to be serving already: the kubelet dials back before it answers.
    """
    if grpc is None:
        raise Unsupported(what="register a resource", subject="grpc", cause="not installed", hint="install python3-grpcio")
    messages = device_plugin()
    request = messages["RegisterRequest"](
        version=DEVICE_PLUGIN.package,
        endpoint=endpoint,
        resource_name=resource,
        options={"pre_start_required": False, "get_preferred_allocation_available": prefer},
    )
    with grpc.insecure_channel(f"unix:{kubelet}", options=_CHANNEL) as channel:
        call: Any = channel.unary_unary(DEVICE_PLUGIN.path("Registration", "Register"), messages.encoder(), messages.decoder("Empty"))
        try:
            call(request, timeout=_DEADLINE)
        except grpc.RpcError as error:
            cause = f"{error.code().name}: {error.details()}"
            raise Fault(what="register a resource", subject=f"{resource} at {kubelet}", cause=cause, hint="it is tried again") from error


class Registrar:
    """Keeps one resource served and registered; `step` is called whenever something may have changed.

    make: a new server each time, as a server that was stopped cannot start again.
    """

    def __init__(
        self,
        resource: str,
        kubelet: Path,
        make: Callable[[], Server],
        register_with: Callable[[Path, str, str, bool], None] = register,
        *,
        prefer: bool = True,
    ) -> None:
        """Begin unserved and unregistered."""
        self.resource = resource
        self._kubelet = kubelet
        self._make = make
        self._register = register_with
        self._prefer = prefer
        self._server: Optional[Server] = None
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

    def step(self, now: float) -> Optional[float]:
        """Do what is due at the monotonic time now; return the seconds until the next look, None when only events matter."""
        present = identity(self._kubelet)
        if present is None:
            self._known = None
            self._say(f"{self.resource}: waiting for the kubelet: {self._kubelet} does not exist")
            return None
        if self._server is not None and not self._server.in_place:
            log.info("%s: %s was removed, the kubelet probably restarted", self.resource, self._server.path)
            self.stop()
        if present == self._known and self._server is not None and self._server.watched:
            self._pause = _FIRST_PAUSE
            return None
        if now < self._not_before:
            return self._not_before - now
        return self._try(present, now)

    def stop(self) -> None:
        """Stop serving and forget the registration."""
        server, self._server, self._known = self._server, None, None
        self._not_before = 0.0
        if server is not None:
            server.stop()

    def _try(self, present: Identity, now: float) -> float:
        try:
            if self._server is None:
                server = self._make()
                server.start()
                self._server = server
            self._register(self._kubelet, self._server.endpoint, self.resource, self._prefer)
        except (Fault, OSError) as fault:
            self._known = None
            self._say(f"{self.resource}: {fault}")
            wait = self._pause * random.uniform(0.8, 1.2)  # noqa: S311
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._known = present
            self._said = ""
            log.info("%s: registered with the kubelet (%s)", self.resource, self._server.path)
            # the kubelet opens the stream behind its answer, and never tries again by itself
            wait = max(_STREAM_DUE, self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._not_before = now + wait
        return wait

    def _say(self, line: str) -> None:
        if line != self._said:
            log.warning("%s", line)
            self._said = line

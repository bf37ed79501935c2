"""One resource's device plugin server: its socket, its calls, its list of devices."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional

from ..device.faults import Fault, Unsupported
from ..device.names import socket_name
from ..device.offer import Offer
from . import answers
from .rpc import grpc
from .wire import DEVICE_PLUGIN, Messages, device_plugin

# each open ListAndWatch keeps a thread, and two may overlap while a kubelet comes back
_THREADS = 8
_LONGEST_PATH = 107
_GRACE = 1.0

Identity = tuple[int, int]


def identity(path: Path) -> Optional[Identity]:
    """Return what tells a file from another one of the same name, (device, inode); None when there is none."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def socket_file(folder: Path, resource: str) -> str:
    """Return the file name of the resource's socket; a hash of the resource where the path would be too long to bind."""
    name = socket_name(resource)
    if len(f"{folder}/.{name}".encode()) > _LONGEST_PATH:
        name = f"vfio-passthrough-{hashlib.sha256(resource.encode()).hexdigest()[:16]}.sock"
    return name


def require() -> None:
    """Raise Unsupported, with the package to install, when this Python cannot speak to a kubelet."""
    if grpc is None:
        raise Unsupported(what="serve a device plugin", subject="grpc", cause="not installed", hint="install python3-grpcio")
    device_plugin()


class Shelf:
    """The units of one resource as last seen; threads wait on it for the next list that differs."""

    def __init__(self) -> None:
        """Begin empty."""
        self._changed = threading.Condition()
        self._offers: dict[str, Offer] = {}
        self._devices: list[dict[str, Any]] = []
        self._version = 0

    def put(self, offers: Sequence[Offer]) -> None:
        """Replace the units; streams send a list only when what the kubelet sees of it differs."""
        with self._changed:
            self._offers = {offer.id: offer for offer in offers}
            devices = [answers.device(offer) for offer in self._offers.values()]
            if devices != self._devices:
                self._devices = devices
                self._version += 1
                self._changed.notify_all()

    def offers(self) -> dict[str, Offer]:
        """Return the units by id."""
        with self._changed:
            return dict(self._offers)

    def wake(self) -> None:
        """Let every waiting stream look whether it has ended."""
        with self._changed:
            self._changed.notify_all()

    def next(self, seen: int, ended: Callable[[], bool]) -> Optional[tuple[int, list[dict[str, Any]]]]:
        """Return the version and list that follow the version seen, as soon as there is one; None when the stream has ended."""
        with self._changed:
            while self._version == seen:
                if ended():
                    return None
                self._changed.wait()
            return self._version, list(self._devices)


class Server:
    """The gRPC server of one resource on one socket of the plugin folder.

    answer: called with the ids of each container request; Allocate asks the machine, not the last list.
    streaming: called when a stream of the kubelet's begins or ends. prefer: whether GetPreferredAllocation is offered.
    """

    def __init__(
        self,
        resource: str,
        folder: Path,
        shelf: Shelf,
        answer: Callable[[list[list[str]]], list[dict[str, Any]]],
        streaming: Callable[[], None],
        *,
        prefer: bool = True,
    ) -> None:
        """Prepare; nothing is bound before `start`. Unsupported without grpc."""
        require()
        self.resource = resource
        self.endpoint = socket_file(folder, resource)
        self._folder = folder
        self._shelf = shelf
        self._answer = answer
        self._streaming = streaming
        self._prefers = prefer
        self._messages: Messages = device_plugin()
        self._server: Any = None
        self._identity: Optional[Identity] = None
        self._closing = False
        self._streams = 0

    @property
    def path(self) -> Path:
        """Return the socket's place."""
        return self._folder / self.endpoint

    @property
    def in_place(self) -> bool:
        """Return whether the file at our place is still the socket that we serve."""
        return self._identity is not None and identity(self.path) == self._identity

    @property
    def watched(self) -> bool:
        """Return whether a kubelet holds a stream open."""
        return self._streams > 0

    def start(self) -> None:
        """Serve: bound under a hidden name and renamed, so that stopping never deletes a successor's socket (grpc 17122)."""
        hidden = self._folder / f".{self.endpoint}"
        hidden.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix=self.endpoint), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((self._handlers(),))
        before = os.umask(0o077)
        try:
            bound = server.add_insecure_port(f"unix:{hidden}")
        except RuntimeError as error:
            raise self._unbound(str(error)) from error
        finally:
            os.umask(before)
        if not bound:
            raise self._unbound("gRPC could not bind")
        server.start()
        self._identity = identity(hidden)
        hidden.replace(self.path)
        self._server = server

    def stop(self) -> None:
        """End the streams and the server, and remove the socket if it is still ours."""
        self._closing = True
        self._shelf.wake()
        if self._server is not None:
            self._server.stop(_GRACE).wait()
        if self.in_place:
            self.path.unlink(missing_ok=True)
        self._identity = None

    def _unbound(self, cause: str) -> Fault:
        return Fault(what="serve a device plugin", subject=str(self.path), cause=cause, hint="look at the folder and what stands in it")

    def _handlers(self) -> Any:
        served: Mapping[str, Callable[[Any, Any], Any]] = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
            "PreStartContainer": lambda _request, _context: self._messages["PreStartContainerResponse"](),
        }
        handlers = {}
        for method, (request, response) in DEVICE_PLUGIN.methods["DevicePlugin"].items():
            make = grpc.unary_stream_rpc_method_handler if response.startswith("stream ") else grpc.unary_unary_rpc_method_handler
            handlers[method] = make(served[method], self._messages.decoder(request), self._messages.encoder())
        return grpc.method_handlers_generic_handler(f"{DEVICE_PLUGIN.package}.DevicePlugin", handlers)

    def _options(self, _request: Any, _context: Any) -> Any:
        return self._messages["DevicePluginOptions"](get_preferred_allocation_available=self._prefers)

    def _list_and_watch(self, _request: Any, context: Any) -> Iterator[Any]:
        context.add_callback(self._shelf.wake)
        self._streams += 1
        self._streaming()
        seen = -1
        try:
            while True:
                found = self._shelf.next(seen, lambda: self._closing or not context.is_active())
                if found is None:
                    return
                seen, devices = found
                yield self._messages["ListAndWatchResponse"](devices=devices)
        finally:
            self._streams -= 1
            self._streaming()

    def _prefer(self, request: Any, _context: Any) -> Any:
        offers = self._shelf.offers()
        chosen = [
            {"deviceIDs": answers.prefer(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size, offers)}
            for one in request.container_requests
        ]
        return self._messages["PreferredAllocationResponse"](container_responses=chosen)

    def _allocate(self, request: Any, context: Any) -> Any:
        try:
            made = self._answer([list(one.devices_ids) for one in request.container_requests])
        except Fault as fault:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, answers.short(fault))
            raise
        return self._messages["AllocateResponse"](container_responses=made)

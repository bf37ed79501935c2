"""One resource's device plugin server: its socket, its calls, its list of devices."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Optional

from ..device.faults import Fault, Unsupported
from ..device.names import socket_name
from ..device.offer import Offer
from . import answers
from .inline import quick
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


def _refusal(path: Path) -> str:
    """Return why the system lets no socket be bound here, which gRPC does not tell; empty when it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(str(path))
        except OSError as error:
            return error.strerror or str(error)
    path.unlink()
    return ""


def require() -> None:
    """Raise Unsupported, with the package to install, when this Python cannot speak to a kubelet."""
    if grpc is None:
        raise Unsupported(what="serve a device plugin", subject="grpc", cause="not installed", hint="install python3-grpcio")
    device_plugin()


class Shelf:
    """The units of one resource as last seen; threads wait on it for the next list that differs."""

    def __init__(self) -> None:
        """Begin empty."""
        self._messages = device_plugin()
        self._changed = threading.Condition()
        self._offers: Mapping[str, Offer] = {}
        self._list = b""
        self._version = 0

    def put(self, offers: Sequence[Offer]) -> None:
        """Replace the units; streams send a list only when what the kubelet sees of it differs."""
        found = {offer.id: offer for offer in offers}
        if found == self._offers:
            return
        listed = self._messages.encode("ListAndWatchResponse", devices=[answers.device(offer) for offer in found.values()])
        with self._changed:
            self._offers = found
            if listed != self._list:
                self._list = listed
                self._version += 1
                self._changed.notify_all()

    def offers(self) -> Mapping[str, Offer]:
        """Return the units by id; what was returned never changes."""
        return self._offers

    def wake(self) -> None:
        """Let every waiting stream look whether it has ended."""
        with self._changed:
            self._changed.notify_all()

    def next(self, seen: int, ended: Callable[[], bool]) -> Optional[tuple[int, bytes]]:
        """Return the version and the ListAndWatchResponse that follow the version seen, as soon as there is one.

        None when the stream has ended.
        """
        with self._changed:
            while self._version == seen:
                if ended():
                    return None
                self._changed.wait()
            return self._version, self._list


class Server:
    """The gRPC server of one resource on one socket of the plugin folder.

    answer: gives for the ids of each container request an AllocateResponse as bytes; it asks the machine, not the last list.
    woken: called when a stream of the kubelet's begins or ends. prefer: whether GetPreferredAllocation is offered.
    prepare: called with a container's ids before each of its starts; its fault keeps it from starting.
    """

    def __init__(
        self,
        resource: str,
        folder: Path,
        shelf: Shelf,
        answer: Callable[[list[list[str]]], Sequence[bytes]],
        woken: Callable[[], None],
        *,
        prefer: bool = True,
        prepare: Optional[Callable[[Sequence[str]], None]] = None,
    ) -> None:
        """Prepare; nothing is bound before `start`. Unsupported without grpc."""
        require()
        self.resource = resource
        self.endpoint = socket_file(folder, resource)
        self.options = {"pre_start_required": prepare is not None, "get_preferred_allocation_available": prefer}
        self.woken = woken
        self._folder = folder
        self._shelf = shelf
        self._answer = answer
        self._prepare = prepare
        self._messages: Messages = device_plugin()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=self.endpoint)
        self._server: Any = None
        self._identity: Optional[Identity] = None
        self._closing = False
        self._streams: set[object] = set()

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
        return bool(self._streams)

    def start(self) -> None:
        """Serve: bound under a hidden name and renamed, so that stopping never deletes a successor's socket (grpc 17122)."""
        hidden = self._folder / f".{self.endpoint}"
        try:
            self._serve(hidden)
            self._identity = identity(hidden)
            hidden.replace(self.path)
        except (Fault, OSError):
            self.stop()
            raise

    def stop(self) -> None:
        """End the streams and the server, and remove the socket if it is still ours."""
        self._closing = True
        self._shelf.wake()
        if self._server is not None:
            self._server.stop(_GRACE).wait()
        # its methods are ours: without this both would stay until the garbage collector finds the circle
        self._server = None
        self._pool.shutdown(wait=False)
        if self.in_place:
            with suppress(OSError):
                self.path.unlink()
        self._identity = None

    def _serve(self, hidden: Path) -> None:
        hidden.unlink(missing_ok=True)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self._handlers(),))
        before = os.umask(0o077)
        try:
            self._server.add_insecure_port(f"unix:{hidden}")
        except RuntimeError as error:
            cause = _refusal(hidden) or str(error)
            hint = "look at the folder and what stands in it"
            raise Fault(what="serve a device plugin", subject=str(self.path), cause=cause, hint=hint) from error
        finally:
            os.umask(before)
        self._server.start()

    def _handlers(self) -> Any:
        """Return the methods. All answer in bytes, which is quicker where the same is sent again and again."""
        options = self._messages.encode("DevicePluginOptions", **self.options)
        served: dict[str, Callable[[Any, Any], Any]] = {
            "GetDevicePluginOptions": lambda _request, _context: options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._prefer,
            "Allocate": quick(self._allocate),
            "PreStartContainer": self._pre_start,
        }
        if not self.options["get_preferred_allocation_available"]:
            del served["GetPreferredAllocation"]
        handlers = {}
        for method, behaviour in served.items():
            request, response = DEVICE_PLUGIN.methods["DevicePlugin"][method]
            make = grpc.unary_stream_rpc_method_handler if response.startswith("stream ") else grpc.unary_unary_rpc_method_handler
            handlers[method] = make(behaviour, self._messages.decoder(request))
        return grpc.method_handlers_generic_handler(f"{DEVICE_PLUGIN.package}.DevicePlugin", handlers)

    def _list_and_watch(self, _request: Any, context: Any) -> Iterator[bytes]:
        context.add_callback(self._shelf.wake)
        stream = object()
        self._streams.add(stream)
        self.woken()
        seen = -1
        try:
            while True:
                found = self._shelf.next(seen, lambda: self._closing or not context.is_active())
                if found is None:
                    return
                seen, listed = found
                yield listed
        finally:
            self._streams.remove(stream)
            self.woken()

    def _prefer(self, request: Any, _context: Any) -> bytes:
        offers = self._shelf.offers()
        chosen = [
            {"deviceIDs": answers.prefer(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size, offers)}
            for one in request.container_requests
        ]
        return self._messages.encode("PreferredAllocationResponse", container_responses=chosen)

    def _allocate(self, request: Any, context: Any) -> bytes:
        try:
            made = self._answer([list(one.devices_ids) for one in request.container_requests])
        except Fault as fault:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, answers.short(fault))
            raise
        return b"".join(made)

    def _pre_start(self, request: Any, context: Any) -> bytes:
        try:
            if self._prepare is not None:
                self._prepare(list(request.devices_ids))
        except Fault as fault:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, answers.short(fault))
        return self._messages.encode("PreStartContainerResponse")

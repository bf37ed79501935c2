"""A kubelet as far as device plugins see it: its registration socket, its dial back, its stream, its Allocate call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN, device_plugin


def until(holds: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Return what `holds` returns as soon as it is true; an assertion error naming what was waited for after some seconds."""
    limit = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < limit, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)


class FakeKubelet:
    """Serves Registration in a folder.

    registrations: the requests taken. lists: id -> health, one per message of a stream; lists_of: the same by resource.
    ended: whether the last stream has ended; streams: those that are open, by resource. options: what was answered when asked.
    refusal: what Register is refused with. deaf: opens no stream.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registrations: list[Any] = []
        self.lists: list[dict[str, str]] = []
        self.lists_of: dict[str, list[dict[str, str]]] = {}
        self.streams: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.ended = threading.Event()
        self.refusal = ""
        self.deaf = False
        self._server: Any = None
        self._channel: Any = None
        self._channels: dict[str, Any] = {}
        self._messages = device_plugin()

    @property
    def socket(self) -> Path:
        return self.folder / "kubelet.sock"

    def start(self) -> None:
        """Begin as the real one does: other sockets of the folder go, ours comes."""
        for old in self.folder.iterdir():
            if old.is_socket():
                # a plugin may be putting it in its place at this moment
                old.unlink(missing_ok=True)
        self.ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._register, self._messages.decoder("RegisterRequest"), self._messages.encoder())
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """End, streams included."""
        if self._server is not None:
            self._server.stop(None).wait()
        for channel in list(self._channels.values()):
            channel.close()
        self._channels.clear()

    def restart(self) -> None:
        self.stop()
        self.start()

    def last(self) -> dict[str, str] | None:
        return self.lists[-1] if self.lists else None

    def call(self, method: str, request: Any) -> Any:
        """Call a method of the plugin that registered last; grpc.RpcError when it refuses."""
        return self._ask(self._channel, method, request)

    def allocate(self, *containers: list[str]) -> list[Any]:
        request = self._messages["AllocateRequest"](container_requests=[{"devices_ids": ids} for ids in containers])
        return list(self.call("Allocate", request).container_responses)

    def _ask(self, channel: Any, method: str, request: Any) -> Any:
        response = DEVICE_PLUGIN.methods["DevicePlugin"][method][1]
        path = DEVICE_PLUGIN.path("DevicePlugin", method)
        return channel.unary_unary(path, self._messages.encoder(), self._messages.decoder(response))(request, timeout=10)

    def _register(self, request: Any, context: Any) -> Any:
        if self.refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        channel = grpc.insecure_channel(f"unix:{self.folder / request.endpoint}")
        # the real one asks before it answers, which is why a plugin has to serve first
        self.options[request.resource_name] = self._ask(channel, "GetDevicePluginOptions", self._messages["Empty"]())
        former = self._channels.get(request.resource_name)
        self._channel = self._channels[request.resource_name] = channel
        if former is not None:
            former.close()
        self.registrations.append(request)
        if not self.deaf:
            threading.Thread(target=self._follow, args=(channel, self.ended, request.resource_name), daemon=True).start()
        return self._messages["Empty"]()

    def _follow(self, channel: Any, ended: threading.Event, resource: str) -> None:
        path = DEVICE_PLUGIN.path("DevicePlugin", "ListAndWatch")
        method = channel.unary_stream(path, self._messages.encoder(), self._messages.decoder("ListAndWatchResponse"))
        call = None
        try:
            call = self.streams[resource] = method(self._messages["Empty"]())
            for message in call:
                listed = {device.ID: device.health for device in message.devices}
                self.lists.append(listed)
                self.lists_of.setdefault(resource, []).append(listed)
        except (grpc.RpcError, ValueError):
            pass
        if self.streams.get(resource) is call:
            del self.streams[resource]
        # of the start that it belongs to: a stream may outlive a restart by a moment
        ended.set()

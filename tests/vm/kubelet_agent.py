"""A stand-in kubelet on the worker, led from outside: one JSON request per line comes in, one JSON answer per line goes out.

    kubelet_agent.py FOLDER

A request is {"do": NAME, ...} with a method of Agent and its arguments; an answer is {"is": VALUE} or {"fault": TEXT}.
Times are the worker's own monotonic clock, in seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import FakeKubelet
from google.protobuf.json_format import MessageToDict

Devices = dict[str, dict[str, Any]]


class Kubelet(FakeKubelet):
    """A kubelet that keeps its resources apart. heard: (time, {id: {"health", "numa"}}) of each message, by resource, since the start."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.heard: dict[str, list[tuple[float, Devices]]] = {}
        self.news = threading.Condition()
        self._channels: dict[str, Any] = {}
        self._one = threading.Lock()

    def stop(self) -> None:
        super().stop()
        # a plugin may be registering at this moment
        for resource in list(self._channels):
            self._channels.pop(resource).close()
        self.heard.clear()

    def ask(self, resource: str, method: str, request: Any) -> Any:
        """Call a method of the plugin that serves a resource."""
        with self._one:
            self._channel = self._channels[resource]
            return self.call(method, request)

    def _register(self, request: Any, _context: Any) -> Any:
        channel = grpc.insecure_channel(f"unix:{self.folder / request.endpoint}")
        self._channels[request.resource_name] = channel
        self.ask(request.resource_name, "GetDevicePluginOptions", self._messages["Empty"]())
        self.registrations.append(request)
        threading.Thread(target=self._listen, args=(request.resource_name, channel), daemon=True).start()
        return self._messages["Empty"]()

    def _listen(self, resource: str, channel: Any) -> None:
        path = DEVICE_PLUGIN.path("DevicePlugin", "ListAndWatch")
        call = channel.unary_stream(path, self._messages.encoder(), self._messages.decoder("ListAndWatchResponse"))
        try:
            for message in call(self._messages["Empty"]()):
                at = time.monotonic()
                devices = {one.ID: {"health": one.health, "numa": [node.ID for node in one.topology.nodes]} for one in message.devices}
                with self.news:
                    self.heard.setdefault(resource, []).append((at, devices))
                    self.news.notify_all()
        except (grpc.RpcError, ValueError):
            pass


class Agent:
    """What can be asked for; each method's arguments come from the request."""

    def __init__(self, folder: Path) -> None:
        self.kubelet = Kubelet(folder)
        self.kubelet.start()

    def restart(self) -> None:
        """End the kubelet and start it again: its socket is another one then."""
        self.kubelet.restart()

    def lists(self, resource: str) -> list[Devices]:
        """Return every list of a resource so far."""
        return [devices for _at, devices in self.kubelet.heard.get(resource, [])]

    def registered(self) -> list[str]:
        """Return the resources in the order of their registrations."""
        return [request.resource_name for request in self.kubelet.registrations]

    def wait(self, resource: str, healthy: list[str], seconds: float, since: float = 0.0) -> float:
        """Return when the list came, not before `since`, after which exactly these units of a resource are healthy."""
        limit = time.monotonic() + seconds
        with self.kubelet.news:
            while True:
                heard = self.kubelet.heard.get(resource, [])
                last = heard[-1][1] if heard else {}
                if heard and heard[-1][0] >= since and healthy == sorted(one for one in last if last[one]["health"] == "Healthy"):
                    return heard[-1][0]
                left = limit - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{resource}: {healthy} not within {seconds:.0f} s; the last list is {last}")
                self.kubelet.news.wait(left)

    def cause(self, writes: Sequence[tuple[str, str]], resource: str, healthy: list[str], seconds: float) -> dict[str, float]:
        """Write texts to files and wait for the list that has to come of it; return when that began, ended, and was told."""
        began = time.monotonic()
        for path, text in writes:
            Path(path).write_text(text, encoding="ascii")
        wrote = time.monotonic()
        return {"began": began, "wrote": wrote, "told": self.wait(resource, healthy, seconds, began)}

    def allocate(self, resource: str, containers: list[list[str]]) -> list[dict[str, Any]]:
        """Return the answer for each container."""
        messages = self.kubelet._messages
        request = messages["AllocateRequest"](container_requests=[{"devices_ids": ids} for ids in containers])
        answer = self.kubelet.ask(resource, "Allocate", request)
        return [MessageToDict(one, preserving_proto_field_name=True) for one in answer.container_responses]


def serve(agent: Agent) -> None:
    """Answer requests until they end."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"is": getattr(agent, request.pop("do"))(**request)}
        except grpc.RpcError as error:
            answer = {"fault": f"{error.code().name}: {error.details()}"}
        except Exception as error:
            answer = {"fault": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Agent(Path(sys.argv[1])))

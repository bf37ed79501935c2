"""A kubelet as far as those see it who ask for holders: its podresources socket, and its store of Allocate's answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.podresources import POD_RESOURCES
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import Messages, device_plugin

MESSAGES = Messages(POD_RESOURCES)
ROOT, PLUGINS = "/var/lib/kubelet", "/var/lib/kubelet/device-plugins"


@dataclass
class FakePodResources:
    """Serves List and GetAllocatableResources below a made host's kubelet root.

    allocatable: (resource, ids), one per NUMA node as the kubelet does. pods: (namespace/name, container, resource, ids).
    """

    base: Path
    allocatable: list[tuple[str, list[str]]] = field(default_factory=list)
    pods: list[tuple[str, str, str, list[str]]] = field(default_factory=list)
    refuses: bool = False
    _server: Any = None

    def start(self) -> None:
        folder = self.base / ROOT.lstrip("/") / "pod-resources"
        folder.mkdir(parents=True, exist_ok=True)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._answer(name), MESSAGES.decoder(request), MESSAGES.encoder())
            for name, (request, dummy) in POD_RESOURCES.methods["PodResourcesLister"].items()
        }
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        self._server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def _answer(self, name: str) -> Any:
        def call(unused_request: Any, context: Any) -> Any:
            if self.refuses:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")
            return self._listed() if name == "List" else self._given()

        return call

    def _given(self) -> Any:
        made = MESSAGES["AllocatableResourcesResponse"]()
        for resource, ids in self.allocatable:
            made.devices.add(resource_name=resource, device_ids=ids)
        return made

    def _listed(self) -> Any:
        made = MESSAGES["ListPodResourcesResponse"]()
        for owner, container, resource, ids in self.pods:
            namespace, _slash, name = owner.partition("/")
            pod = made.pod_resources.add(name=name, namespace=namespace)
            pod.containers.add(name=container).devices.add(resource_name=resource, device_ids=ids)
        return made


def answer(envs: Mapping[str, str], mounts: Sequence[str] = (), nodes: Sequence[str] = ()) -> str:
    """Return an answer of Allocate as the kubelet stores it."""
    made = device_plugin()["ContainerAllocateResponse"](
        envs=dict(envs),
        mounts=[{"host_path": one, "container_path": one} for one in mounts],
        devices=[{"host_path": one, "container_path": one, "permissions": "mrw"} for one in nodes],
    )
    return base64.b64encode(made.SerializeToString()).decode()


def entry(resource: str, ids: Sequence[str], stored: str, pod: str = "uid-a", container: str = "compute") -> dict[str, Any]:
    """Return one entry of the kubelet's store; the kubelet keeps ids by NUMA node, "-1" for none."""
    return {"PodUID": pod, "ContainerName": container, "ResourceName": resource, "DeviceIDs": {"-1": list(ids)}, "AllocResp": stored}


def store(folder: Path, *entries: object) -> Path:
    """Write the kubelet's store into its plugin folder and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kubelet_internal_checkpoint"
    file.write_text(json.dumps({"Data": {"PodDeviceEntries": list(entries), "RegisteredDevices": {}}, "Checksum": 1}), encoding="utf-8")
    return file

"""Reader of the kubelet's podresources API: which devices it may give, and which pod holds which (KEP-606, KEP-2043)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..device.faults import Absent, Fault, Unsupported
from ..root import Root
from .rpc import grpc
from .wire import Api, Messages

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
_WHAT = "ask the kubelet for its devices"
_SECONDS = 10.0

# k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; what we do not read is left out, protobuf keeps it as unknown fields
POD_RESOURCES = Api(
    package="v1",
    messages={
        "ListPodResourcesRequest": (),
        "ListPodResourcesResponse": (("pod_resources", 1, "repeated PodResources"),),
        "AllocatableResourcesRequest": (),
        "AllocatableResourcesResponse": (("devices", 1, "repeated ContainerDevices"),),
        "PodResources": (("name", 1, "string"), ("namespace", 2, "string"), ("containers", 3, "repeated ContainerResources")),
        "ContainerResources": (("name", 1, "string"), ("devices", 2, "repeated ContainerDevices")),
        "ContainerDevices": (("resource_name", 1, "string"), ("device_ids", 2, "repeated string")),
    },
    methods={
        "PodResourcesLister": {
            "List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
            "GetAllocatableResources": ("AllocatableResourcesRequest", "AllocatableResourcesResponse"),
        }
    },
)


@dataclass(frozen=True)
class Kubelet:
    """What the kubelet says: allocatable device ids by resource, and the pod ("namespace/name") that holds a device."""

    allocatable: Mapping[str, frozenset[str]] = field(default_factory=dict)
    holders: Mapping[tuple[str, str], str] = field(default_factory=dict)


@cache
def _messages() -> Messages:
    return Messages(POD_RESOURCES)


def read_kubelet(root: Root, socket: str = "") -> Kubelet:
    """Return the kubelet's devices and their holders; Absent without its socket, Fault when it does not answer in 10 s.

    Only what the kubelet counts as healthy is allocatable (GetAllocatableResources leaves unhealthy devices out).
    """
    if grpc is None:
        raise Unsupported(what=_WHAT, subject="grpc", cause="not installed", hint="install python3-grpcio and python3-protobuf")
    path = root.at(socket or SOCKET)
    if not path.exists():
        raise Absent(what=_WHAT, subject=str(path), cause="no such socket", hint="start the kubelet")
    with grpc.insecure_channel(f"unix:{path}", options=(("grpc.default_authority", "localhost"),)) as channel:
        allocatable = _call(channel, path, "GetAllocatableResources")
        listed = _call(channel, path, "List")
    return Kubelet(_ids(allocatable.devices), _holders(listed))


def _call(channel: Any, path: object, method: str) -> Any:
    request, response = POD_RESOURCES.methods["PodResourcesLister"][method]
    messages = _messages()
    call = channel.unary_unary(
        POD_RESOURCES.path("PodResourcesLister", method),
        request_serializer=messages.encoder(),
        response_deserializer=messages.decoder(response),
    )
    try:
        return call(messages[request](), timeout=_SECONDS)
    except grpc.RpcError as error:
        raise Fault(
            what=_WHAT, subject=f"{path} {method}", cause=f"{error.code().name}: {error.details()}", hint="look at the kubelet's log"
        ) from error


def _ids(devices: Any) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for one in devices:
        # one resource stands in several entries, one per NUMA node
        found.setdefault(one.resource_name, set()).update(one.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}


def _holders(listed: Any) -> dict[tuple[str, str], str]:
    return {
        (one.resource_name, device_id): f"{pod.namespace}/{pod.name}"
        for pod in listed.pod_resources
        for container in pod.containers
        for one in container.devices
        for device_id in one.device_ids
    }

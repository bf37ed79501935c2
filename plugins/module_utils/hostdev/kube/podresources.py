"""Client of the kubelet's podresources API (KEP-606, KEP-2043): its messages, and one call that asks all of it."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..device.faults import Absent, Fault, Unsupported
from ..root import Root
from .wire import Api, Messages

try:
    import grpc
except ImportError:
    grpc = None

KUBELET_ROOT = "/var/lib/kubelet"
_SOCKET = "pod-resources/kubelet.sock"
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


@cache
def _messages() -> Messages:
    return Messages(POD_RESOURCES)


def ask(root: Root, kubelet_root: str = KUBELET_ROOT) -> tuple[Any, Any]:
    """Return the answers to GetAllocatableResources and to List, as messages.

    kubelet_root: the kubelet's --root-dir, which its socket follows. Absent without the socket, Fault when it does not answer
    in 10 s, Unsupported without python3-grpcio.
    """
    if grpc is None:
        raise Unsupported(what=_WHAT, subject="grpc", cause="not installed", hint="install python3-grpcio and python3-protobuf")
    path = root.at(f"{kubelet_root}/{_SOCKET}")
    if not path.exists():
        raise Absent(what=_WHAT, subject=str(path), cause="no such socket", hint="start the kubelet")
    with grpc.insecure_channel(f"unix:{path}", options=(("grpc.default_authority", "localhost"),)) as channel:
        return _call(channel, path, "GetAllocatableResources"), _call(channel, path, "List")


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

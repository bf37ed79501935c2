"""Kubernetes' node APIs as protobuf messages that are built at run time from the tables below.

Generated stubs bind to one release of protobuf and need a folder of their own; descriptors that are made in a private
pool work with every release from 4.21 on, and two APIs may both be called api.proto or "v1".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Callable

from ..device.faults import Unsupported

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    descriptor_pb2 = None  # type: ignore[assignment]

Rows = Mapping[str, tuple[tuple[str, int, str], ...]]


@dataclass(frozen=True)
class Api:
    """One gRPC API: its protobuf package, its messages and its methods.

    messages: message -> rows of (field, number, type). A type is a scalar of protobuf, the name of a message of this
    table, "repeated TYPE", or "map TYPE" with text keys.
    methods: service -> method -> (request, response); a response "stream MESSAGE" is a server stream.
    """

    package: str
    messages: Rows
    methods: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)

    def path(self, service: str, method: str) -> str:
        """Return the method's path as it stands in an HTTP/2 request."""
        return f"/{self.package}.{service}/{method}"


# k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto
DEVICE_PLUGIN = Api(
    package="v1beta1",
    messages={
        "RegisterRequest": (
            ("version", 1, "string"),
            ("endpoint", 2, "string"),
            ("resource_name", 3, "string"),
            ("options", 4, "DevicePluginOptions"),
        ),
        "Empty": (),
        "DevicePluginOptions": (("pre_start_required", 1, "bool"), ("get_preferred_allocation_available", 2, "bool")),
        "ListAndWatchResponse": (("devices", 1, "repeated Device"),),
        "TopologyInfo": (("nodes", 1, "repeated NUMANode"),),
        "NUMANode": (("ID", 1, "int64"),),
        "Device": (("ID", 1, "string"), ("health", 2, "string"), ("topology", 3, "TopologyInfo")),
        "PreferredAllocationRequest": (("container_requests", 1, "repeated ContainerPreferredAllocationRequest"),),
        "ContainerPreferredAllocationRequest": (
            ("available_deviceIDs", 1, "repeated string"),
            ("must_include_deviceIDs", 2, "repeated string"),
            ("allocation_size", 3, "int32"),
        ),
        "PreferredAllocationResponse": (("container_responses", 1, "repeated ContainerPreferredAllocationResponse"),),
        "ContainerPreferredAllocationResponse": (("deviceIDs", 1, "repeated string"),),
        "PreStartContainerRequest": (("devices_ids", 1, "repeated string"),),
        "PreStartContainerResponse": (),
        "AllocateRequest": (("container_requests", 1, "repeated ContainerAllocateRequest"),),
        "ContainerAllocateRequest": (("devices_ids", 1, "repeated string"),),
        "AllocateResponse": (("container_responses", 1, "repeated ContainerAllocateResponse"),),
        "ContainerAllocateResponse": (
            ("envs", 1, "map string"),
            ("mounts", 2, "repeated Mount"),
            ("devices", 3, "repeated DeviceSpec"),
            ("annotations", 4, "map string"),
            ("cdi_devices", 5, "repeated CDIDevice"),
        ),
        "Mount": (("container_path", 1, "string"), ("host_path", 2, "string"), ("read_only", 3, "bool")),
        "DeviceSpec": (("container_path", 1, "string"), ("host_path", 2, "string"), ("permissions", 3, "string")),
        "CDIDevice": (("name", 1, "string"),),
    },
    methods={
        "Registration": {"Register": ("RegisterRequest", "Empty")},
        "DevicePlugin": {
            "GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
            "ListAndWatch": ("Empty", "stream ListAndWatchResponse"),
            "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse"),
            "Allocate": ("AllocateRequest", "AllocateResponse"),
            "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse"),
        },
    },
)

_SCALARS = {"string": 9, "bytes": 12, "bool": 8, "int32": 5, "int64": 3, "uint32": 13, "uint64": 4}  # FieldDescriptorProto.Type
_MESSAGE, _ONE, _MANY = 11, 1, 3


class Messages:
    """The message classes of one API: `messages["Device"](ID="7")`."""

    def __init__(self, api: Api) -> None:
        """Build the classes; Unsupported without python3-protobuf."""
        if descriptor_pb2 is None:
            raise Unsupported(
                what="speak to the kubelet",
                subject="google.protobuf",
                cause="not installed",
                hint="install python3-protobuf and python3-grpcio",
            )
        pool = descriptor_pool.DescriptorPool()
        file = _file(api)
        pool.Add(file)
        make = _maker(pool)
        self._classes = {name: make(pool.FindMessageTypeByName(f"{api.package}.{name}")) for name in api.messages}

    def __getitem__(self, name: str) -> Any:
        """Return the class of a message."""
        return self._classes[name]

    def encode(self, name: str, **fields: Any) -> bytes:
        """Return a message as bytes. Those of one message type may be joined: repeated fields then follow each other."""
        return _serialize(self._classes[name](**fields))

    def encoder(self) -> Callable[[Any], bytes]:
        """Return the function that gRPC calls to send a message of ours."""
        return _serialize

    def decoder(self, name: str) -> Callable[[bytes], Any]:
        """Return the function that gRPC calls to read a message."""
        parse: Callable[[bytes], Any] = self._classes[name].FromString
        return parse


@cache
def device_plugin() -> Messages:
    """Return the messages of the device plugin API v1beta1."""
    return Messages(DEVICE_PLUGIN)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _maker(pool: Any) -> Callable[[Any], Any]:
    """Return what makes a class from a descriptor: GetMessageClass came with protobuf 4.22, GetPrototype left with 5.26."""
    modern = getattr(message_factory, "GetMessageClass", None)
    if modern is not None:
        return modern  # type: ignore[no-any-return]
    factory: Any = message_factory.MessageFactory
    return factory(pool).GetPrototype  # type: ignore[no-any-return]


def _file(api: Api) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{api.package}.proto", package=api.package, syntax="proto3")
    for name, rows in api.messages.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in rows:
            _add_field(api, message, field_name, number, kind)
    return file


def _add_field(api: Api, message: Any, name: str, number: int, kind: str) -> None:
    shape, _space, inner = kind.rpartition(" ")
    made = message.field.add(name=name, number=number, label=_MANY if shape else _ONE)
    if shape == "map":
        # a map is a repeated entry message of key and value, whose name protobuf derives from the field's
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_ONE, type=_SCALARS["string"])
        _set_type(api, entry.field.add(name="value", number=2, label=_ONE), inner)
        made.type, made.type_name = _MESSAGE, f".{api.package}.{message.name}.{entry.name}"
    else:
        _set_type(api, made, inner)


def _set_type(api: Api, made: Any, kind: str) -> None:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        made.type = scalar
    else:
        made.type, made.type_name = _MESSAGE, f".{api.package}.{kind}"

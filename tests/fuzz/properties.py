"""What has to hold whatever a machine, a user, a kubelet or a peer says; hypothesis finds the inputs.

Each property takes one input. `make test` tries a few hundred of each, `make soak` a million in all.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import SHARED, place_folder
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import UNREADABLE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import allocate, device, prefer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import load_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN, device_plugin
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GRANTS = "/run/g"
DECLARED = parse_declaration(
    [
        {"resource": "a.com/gpu", "select": [{"id": "10de:2684"}, {"class": "04"}, {"vgpu_type": "592"}], "functions": "all"},
        {"resource": "a.com/any", "select": {"numa_node": 0}},
        {"resource": "a.com/vgpu", "select": [{"mdev_type": "GRID T4-1Q"}, {"mdev_type": "nvidia-222"}]},
        {"resource": "a.com/stick", "select": {"usb": {"vendor": "46f4"}}},
        {"resource": "a.com/desk", "bundle": [{"usb": {"product": "c077"}}, {"usb": {"serial": "S"}}]},
        {"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm", "count": 3},
    ]
)
_NODE = re.compile(r"/dev(/[A-Za-z0-9_:-][A-Za-z0-9._:-]*)+")
_ID = re.compile(r"[A-Za-z0-9:._-]{1,63}")

# texts as an attribute may hold them: half of a number, an old driver's words, nothing, noise
WORDS = st.sampled_from(
    ["", "0", "-1", "1\n", "0x10de", "..", "../..", "vfio-pci", "nvidia", "592", "a b", "PCI_ID=10DE:2684\n", "\x00", "\u00e9"]
)
# without halves of surrogate pairs, which no file holds
NOISE = st.text(st.characters(codec="utf-8"), max_size=40)
TEXT = st.one_of(WORDS, NOISE)
NAME = st.one_of(st.sampled_from(["16", "0", "16 17", "vfio-pci", "mlx5_vfio_pci", "nvidia", "snd_hda_intel"]), NOISE).map(
    lambda text: text.replace("/", "_").replace("\0", "_")[:40] or "x"
)
FUNCTION = st.fixed_dictionaries(
    {
        "driver": st.sampled_from(["", "vfio-pci", "nvidia", "mlx5_vfio_pci", "snd_hda_intel"]),
        "group": NAME,
        "uevent": st.one_of(st.sampled_from(["PCI_CLASS=30000\nPCI_ID=10DE:2684\n", "PCI_CLASS=40300\nPCI_ID=10DE:22BA\n"]), TEXT),
        "numa_node": TEXT,
        "sriov_totalvfs": st.one_of(st.none(), TEXT),
        "nvidia/current_vgpu_type": st.one_of(st.none(), TEXT),
        "vfio-dev": st.lists(NAME, max_size=2),
    }
)
UUIDS = st.one_of(st.uuids().map(str), NAME)
MDEV = st.fixed_dictionaries({"uuid": UUIDS, "type_id": NAME, "name": st.one_of(st.none(), TEXT), "group": NAME})
USB = st.fixed_dictionaries({"port": st.from_regex(r"[0-9]-[0-9](\.[0-9])?", fullmatch=True), "uevent": TEXT, "serial": TEXT})
USB_WORDS = st.builds(
    lambda product, bus, number, node: f"PRODUCT={product}\nBUSNUM={bus}\nDEVNUM={number}\nDEVNAME={node}\n",
    st.one_of(st.just("46f4/c077/1"), TEXT),
    st.one_of(st.just("001"), TEXT),
    st.one_of(st.just("002"), TEXT),
    st.one_of(st.sampled_from(["bus/usb/001/002", "../etc/passwd", "/etc/passwd", "bus/../../etc"]), TEXT),
)
MACHINE = st.fixed_dictionaries(
    {
        "functions": st.lists(FUNCTION, max_size=4),
        "mdevs": st.lists(MDEV, max_size=2, unique_by=lambda one: one["uuid"]),
        "sticks": st.lists(st.one_of(USB, USB.flatmap(lambda one: USB_WORDS.map(lambda text: {**one, "uevent": text}))), max_size=3),
    }
)
SELECTING = ["id", "usb", "vendor", "mdev_type", "address", "pciVendorSelector", "selectors", "mdevNameSelector"]
KEYS = st.sampled_from(
    [
        *("resource", "select", "bundle", "node", "count", "permissions", "functions", "allow", "allocation", "devices"),
        *("permitted_host_devices", "pciHostDevices", "mediatedDevices", "resourceName", "externalResourceProvider"),
        *SELECTING,
    ]
)
VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.sampled_from(["10de:2684", "a.com/x", "all", "dra"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, NOISE), inner, max_size=4)),
    max_leaves=12,
)
IDS = st.one_of(st.sampled_from("123"), NOISE)
MESSAGES = tuple(DEVICE_PLUGIN.messages)


def machine(said: dict[str, Any]) -> None:
    """Whatever sysfs says: no reader fails, and nothing outside /dev is handed out."""
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(Path(folder))
        for number, one in enumerate(said["functions"]):
            files = {name: text for name in ("numa_node", "sriov_totalvfs", "nvidia/current_vgpu_type") if (text := one[name]) is not None}
            place = host.function(
                f"0000:0{number}:00.{number % 2}",
                driver=one["driver"],
                group=one["group"],
                uevent=one["uevent"],
                files=files,
            )
            for name in one["vfio-dev"]:
                (place / "vfio-dev" / name).mkdir(parents=True, exist_ok=True)
        for one in said["mdevs"]:
            host.mdev(one["uuid"], one["type_id"], one["name"], group=one["group"])
        for one in said["sticks"]:
            host.usb(one["port"], uevent=one["uevent"], serial=one["serial"])
        first = find(host.root, DECLARED)
        later = find(host.root, DECLARED, first.offers)
        assert (first.faults, later.faults) == ((), ())
        assert UNREADABLE not in {one.reason for one in find_skipped(host.root, DECLARED, first.offers)}
        _sound(first.offers)
        _sound(later.offers)


def _sound(offers: Iterable[Offer]) -> None:
    listed = list(offers)
    assert len({(one.resource, one.id) for one in listed}) == len(listed)
    for offer in listed:
        assert _ID.fullmatch(offer.id), offer
        for node in (*offer.required, *offer.optional):
            assert _NODE.fullmatch(node), offer
            assert ".." not in node.split("/"), offer
        device_plugin()["Device"](**device(offer)).SerializeToString()
    for resource in {one.resource for one in listed}:
        mine = {one.id: one for one in listed if one.resource == resource}
        for one in mine.values():
            if not one.reason:
                (answer,) = allocate(resource, [[one.id]], mine, GRANTS)
                device_plugin()["ContainerAllocateResponse"](**answer).SerializeToString()


def configuration(said: Any) -> None:
    """Whatever stands in a configuration: it is read, or refused as a fault."""
    blocks = said if isinstance(said, dict) else {"devices": said}
    try:
        declaration = parse_declaration(blocks.get("devices"), blocks.get("permitted_host_devices"))
    except Fault:
        return
    for entry in declaration.entries:
        assert entry.wanted, entry
        assert "/" in entry.resource


def configuration_file(data: bytes) -> None:
    """Whatever bytes stand in the configuration file: they are read, or refused as a fault."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "devices.json")
        place.write_bytes(data)
        try:
            load_declaration(str(place))
        except Fault:
            return


def message(said: tuple[str, bytes]) -> None:
    """Whatever bytes a kubelet sends: they are decoded, or refused by the decoder's own error, of which gRPC knows."""
    name, data = said
    try:
        made = device_plugin()[name].FromString(data)
    except DecodeError:
        return
    assert made.SerializeToString() is not None


def request(said: tuple[list[str], list[str], int]) -> None:
    """Whatever ids are asked for: they are answered, or refused as a fault; and a preference is made of what is available."""
    available, included, size = said
    offers = {
        number: Offer("pci", "a.com/gpu", number, f"0000:0{number}:00.0", (f"0000:0{number}:00.0",), required=(node,), present=(node,))
        for number in ("1", "2", "3")
        for node in [f"/dev/vfio/{number}"]
    }
    chosen = prefer(available, included, size, offers)
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= {*included, *offers}
    try:
        (answer,) = allocate("a.com/gpu", [available], offers, GRANTS)
    except Fault:
        return
    for mount in answer["mounts"]:
        assert Path(mount["host_path"]).parent.parent == Path(GRANTS)


def grant_folder(said: tuple[str, str]) -> None:
    """Whatever a resource and an id are called: the folder is two below the folder of all, and its socket can be bound."""
    resource, unit = said
    place = place_folder(resource, unit, GRANTS)
    if resource and "\0" not in resource:
        assert Path(place).parent.parent == Path(GRANTS) or not resource.strip("/.")
        assert len(f"{place}/grant.sock".encode()) <= 107
    assert place_folder("a.com/x", unit, GRANTS, shared=True).endswith(SHARED)


def tried(name: str, examples: int) -> Callable[[], None]:
    """Return what tries a property on so many inputs; it raises when one breaks it."""
    holds, inputs = PROPERTIES[name]
    often = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    made: Callable[[], None] = often(given(inputs)(holds))  # type: ignore[no-untyped-call]
    return made


def json_bytes(value: Any) -> bytes:
    """Return a value as a file holds it."""
    return json.dumps(value).encode()


# property -> the inputs it is tried on
PROPERTIES: dict[str, tuple[Any, Any]] = {
    "machine": (machine, MACHINE),
    "configuration": (configuration, VALUE),
    "configuration file": (configuration_file, st.one_of(st.binary(max_size=200), VALUE.map(json_bytes))),
    "message": (message, st.tuples(st.sampled_from(MESSAGES), st.binary(max_size=120))),
    "request": (request, st.tuples(st.lists(IDS, max_size=6), st.lists(IDS, max_size=4), st.integers(-3, 9))),
    "grant folder": (grant_folder, st.tuples(st.from_regex(r"[a-z]{1,40}\.com/[A-Za-z0-9._-]{1,63}", fullmatch=True), NOISE)),
}

"""Our variables, read by KubeVirt's own launcher: it attaches the devices that the allocated units stand for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import allocate
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.oracle import HostDevice, Oracle

GPU, NIC, VF, VGPU, STICK, SET = (f"example.com/{name}" for name in ("gpu", "nic", "vf", "v.gpu-4Q", "stick", "set"))
MDEVS = ("53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa")
DECLARATION = parse_declaration(
    [
        {"resource": GPU, "select": {"id": "10de:2684"}, "functions": "all"},
        {"resource": NIC, "select": {"id": "8086:1520"}},
        {"resource": VF, "select": {"id": "10de:20b7"}},
        {"resource": VGPU, "select": {"mdev_type": "GRID T4-1Q"}},
        {"resource": STICK, "select": {"usb": {"vendor": "46f4", "product": "0001"}}},
        {"resource": SET, "bundle": [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "product": "c31c"}}]},
    ]
)
# resource, id -> the kind of element and the addresses of it that the unit stands for
UNITS = {
    (GPU, "16"): ("pci", "0000:01:00.0"),
    (GPU, "17"): ("pci", "0000:02:00.0"),
    (NIC, "40"): ("pci", "0000:41:10.7"),
    (VF, "41"): ("pci", "0000:c1:00.4"),
    (VGPU, "100"): ("mdev", MDEVS[0]),
    (VGPU, "101"): ("mdev", MDEVS[1]),
    (STICK, "1-1"): ("usb", "1:2"),
    (STICK, "3-4.2:ABC"): ("usb", "3:117"),
    (SET, "1-5_1-6"): ("usb", "1:20", "1:21"),
}


@pytest.fixture(name="oracle", scope="module")
def _oracle() -> Iterator[Oracle]:
    with Oracle() as oracle:
        yield oracle


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    for bus, group in (("01", "16"), ("02", "17")):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group)
        host.function(f"0000:{bus}:00.1", "10de:22ba", "040300", driver="vfio-pci", group=group)
    host.function("0000:41:10.7", "8086:1520", "020000", driver="vfio-pci", group="40")
    # NVIDIA's vendor-specific framework: the vendor's driver holds the VF, which has a profile
    vf = host.function("0000:c1:00.4", "10de:20b7", "030200", driver="nvidia", group="41", files={"nvidia/current_vgpu_type": "256\n"})
    (vf / "physfn").symlink_to("../0000:c1:00.0")
    host.function("0000:65:00.0", "10de:1eb8", "030200", driver="nvidia", group="1")
    for uuid, group in zip(MDEVS, ("100", "101")):
        host.mdev(uuid, group=group)
    for group in ("16", "17", "40", "41", "100", "101"):
        host.node(group)
    host.usb("1-1", bus=1, device=2)
    host.usb("3-4.2", bus=3, device=117, serial="ABC")
    host.usb("1-5", "046d:c077", bus=1, device=20)
    host.usb("1-6", "046d:c31c", bus=1, device=21)
    return host


def variables(host: FakeHost, **units: list[str]) -> dict[str, str]:
    """Return the environment of a container that was given units of example.com/NAME, as our plugin answers."""
    offers = find(host.root, DECLARATION).offers
    env: dict[str, str] = {}
    for resource, ids in units.items():
        mine = {offer.id: offer for offer in offers if offer.resource == resource}
        (answer,) = allocate(resource, [ids], mine, "/g")
        env |= answer["envs"]
    return env


def alias(kind: str, name: str) -> str:
    return f"usb-host-{name}" if kind == "usb" else f"hostdevice-{name}"


def test_every_unit_is_there(host: FakeHost) -> None:
    assert {(offer.resource, offer.id): offer.health for offer in find(host.root, DECLARATION).offers} == dict.fromkeys(UNITS, "Healthy")


@pytest.mark.parametrize(("resource", "unit"), UNITS, ids=lambda one: str(one).rpartition("/")[2])
def test_one_unit_is_its_device(oracle: Oracle, host: FakeHost, resource: str, unit: str) -> None:
    kind, *sources = UNITS[resource, unit]
    made = oracle.devices(variables(host, **{resource: [unit]}), [resource] * len(sources))
    assert made == [HostDevice(kind, alias(kind, f"h{number}"), source) for number, source in enumerate(sources)]


def test_devices_come_in_the_order_of_the_ids(oracle: Oracle, host: FakeHost) -> None:
    for resource, ids in ((GPU, ["17", "16"]), (VGPU, ["101", "100"]), (STICK, ["3-4.2:ABC", "1-1"])):
        made = oracle.devices(variables(host, **{resource: ids}), [resource, resource])
        assert [one.source for one in made] == [UNITS[resource, unit][1] for unit in ids]


def test_of_one_request_for_a_usb_bundle_kubevirt_attaches_the_first_device(oracle: Oracle, host: FakeHost) -> None:
    """Its limit, not ours: the variable names the whole unit."""
    env = variables(host, **{SET: ["1-5_1-6"]})
    assert env == {"USB_RESOURCE_EXAMPLE_COM_SET": "1:20,1:21"}
    assert oracle.devices(env, [SET]) == [HostDevice("usb", "usb-host-h0", "1:20")]


def test_kinds_do_not_disturb_each_other(oracle: Oracle, host: FakeHost) -> None:
    env = variables(host, **{GPU: ["16"], NIC: ["40"], VGPU: ["100"], STICK: ["1-1"]})
    made = oracle.devices(env, [STICK, NIC], [GPU, VGPU])
    wanted = [("pci", "0000:41:10.7"), ("usb", "1:2"), ("pci", "0000:01:00.0"), ("mdev", MDEVS[0])]
    assert [(one.type, one.source) for one in made] == wanted
    assert [one.alias for one in made] == ["hostdevice-h1", "usb-host-h0", "gpu-g0", "gpu-g1"]


def test_without_our_variable_kubevirt_refuses(oracle: Oracle) -> None:
    answer = oracle.ask({"PCI_RESOURCE_EXAMPLE_COM_OTHER": "0000:01:00.0"}, [GPU])
    assert "do not match the number of devices" in answer["error"]

"""Every kind of device on a real kubelet: counts, what a container is given, what it is granted, and health while it is in use."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.handover import IN_CONTAINER
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import (
    SECONDS,
    USER,
    Plugin,
    ask,
    containers,
    counts,
    delete_pods,
    ledger,
    made_plugin,
    make_node,
    process_of,
    wait_until,
)
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

VFIO, IOMMU = "/dev/vfio/vfio", "/dev/iommu"
KIB, MANY = 1 << 10, 1 << 55
UUIDS = ("53764d0e-85a0-42b4-af5c-2046b460b1dc", "54444d0e-85a0-42b4-af5c-2046b4bbb1aa")
CDEVS = [f"/dev/vfio/devices/vfio{number}" for number in range(4)]


@dataclass(frozen=True)
class Case:
    """One resource.

    entry: its declaration. units: by id, what it has in the variable. nodes: by id, those that are the container's to own; of a
    node that is offered many times "all" stands for each id. vfio: whether memory is locked for it. writes: whether a container
    may write to its nodes.
    """

    resource: str
    entry: Mapping[str, Any]
    variable: str
    units: Mapping[str, str]
    nodes: Mapping[str, Sequence[str]]
    vfio: bool = False
    writes: bool = True

    def place(self, unit: str) -> str:
        return "all" if "all" in self.nodes else unit

    def owned(self, unit: str) -> list[str]:
        return list(self.nodes[self.place(unit)])

    def grant(self, host: FakeHost, unit: str) -> str:
        return f"{host.base}/g/{self.resource.upper().replace('/', '_').replace('.', '_')}/{self.place(unit)}"

    @property
    def script(self) -> str:
        """Return what a container does: it waits until it may open each of its nodes, and keeps all that it was given.

        Without a driver behind it a node that may be opened is ENXIO; EACCES is its mode, EPERM the container's device cgroup.
        """
        nodes = sorted({path for paths in self.nodes.values() for path in paths})
        return f"""
may() {{
  case $(eval "(: $1 $2)" 2>&1) in ""|*"No such device or address") return 0;; esac
  return 1
}}
for node in {" ".join(nodes)}; do
  test -c $node || continue
  until may "<" $node; do sleep 0.2; done
  may "<>" $node && echo written $node || echo read $node
done
exec sleep 100000
"""


CASES = {
    "card": Case(
        "example.com/card",
        {"select": {"id": "10de:2684"}, "functions": "all"},
        "PCI_RESOURCE_EXAMPLE_COM_CARD",
        {"16": "0000:01:00.0", "17": "0000:02:00.0"},
        {"16": ("/dev/vfio/16", *CDEVS[:2], IOMMU), "17": ("/dev/vfio/17", *CDEVS[2:], IOMMU)},
        vfio=True,
    ),
    "function": Case(
        "example.com/vf",
        {"select": {"vgpu_type": "256"}},
        "PCI_RESOURCE_EXAMPLE_COM_VF",
        {"40": "0000:c1:00.4", "41": "0000:c1:00.5"},
        {"40": ("/dev/vfio/40",), "41": ("/dev/vfio/41",)},
        vfio=True,
    ),
    "mdev": Case(
        "example.com/vgpu",
        {"select": {"mdev_type": "GRID T4-1Q"}},
        "MDEV_PCI_RESOURCE_EXAMPLE_COM_VGPU",
        dict(zip(("100", "101"), UUIDS)),
        {"100": ("/dev/vfio/100",), "101": ("/dev/vfio/101",)},
        vfio=True,
    ),
    "usb": Case(
        "example.com/stick",
        {"select": {"usb": {"vendor": "46f4", "product": "0001"}}},
        "USB_RESOURCE_EXAMPLE_COM_STICK",
        {"1-1:A": "1:2", "1-2:B": "1:3"},
        {"1-1:A": ("/dev/bus/usb/001/002",), "1-2:B": ("/dev/bus/usb/001/003",)},
    ),
    "bundle": Case(
        "example.com/desk",
        {"bundle": [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "product": "c31c"}}]},
        "USB_RESOURCE_EXAMPLE_COM_DESK",
        {"1-5_1-6": "1:10,1:11", "1-7_1-8": "1:12,1:13"},
        {
            "1-5_1-6": ("/dev/bus/usb/001/010", "/dev/bus/usb/001/011"),
            "1-7_1-8": ("/dev/bus/usb/001/012", "/dev/bus/usb/001/013"),
        },
    ),
    "kvm": Case(
        "devices.kubevirt.io/kvm", {"node": "/dev/kvm", "count": 3}, "", dict.fromkeys(("kvm0", "kvm1", "kvm2"), ""), {"all": ("/dev/kvm",)}
    ),
    "tun": Case(
        "example.com/tun",
        {"node": "/dev/net/tun", "count": 2, "permissions": "r"},
        "",
        dict.fromkeys(("tun0", "tun1"), ""),
        {"all": ("/dev/net/tun",)},
        writes=False,
    ),
    "iommufd": Case(
        "devices.kubevirt.io/iommufd",
        {"node": IOMMU, "count": 2},
        "",
        dict.fromkeys(("iommufd0", "iommufd1"), ""),
        {"all": (IOMMU,)},
    ),
}
ALL = {case.resource: "1" for case in CASES.values()}


def furnish(host: FakeHost) -> list[object]:
    """Make two units of each kind; the nodes of each are of another number."""
    for number, bus in enumerate(("01", "02")):
        for function, (id_text, code) in enumerate((("10de:2684", "030000"), ("10de:22ba", "040300"))):
            cdev = {f"vfio-dev/vfio{2 * number + function}/dev": "511:0\n"}
            host.function(f"0000:{bus}:00.{function}", id_text, code, driver="vfio-pci", group=str(16 + number), files=cdev)
    parent = host.function("0000:c1:00.0", "10de:20b7", "030200", driver="nvidia", group="39", files={"sriov_totalvfs": "16\n"})
    for number in range(2):
        profile = {"nvidia/current_vgpu_type": "256\n"}
        made = host.function(f"0000:c1:00.{4 + number}", "10de:20b7", "030200", driver="nvidia", group=str(40 + number), files=profile)
        (made / "physfn").symlink_to(os.path.relpath(parent, made))
    host.function("0000:65:00.0", "10de:1eb8", "030200", driver="nvidia", group="1")
    for uuid, group in zip(UUIDS, ("100", "101")):
        host.mdev(uuid, group=group)
    host.usb("1-1", device=2, serial="A")
    host.usb("1-2", device=3, serial="B")
    for port, id_text, device in (("1-5", "046d:c077", 10), ("1-6", "046d:c31c", 11), ("1-7", "046d:c077", 12), ("1-8", "046d:c31c", 13)):
        host.usb(port, id_text, device=device)
    nodes = {path for case in CASES.values() for paths in case.nodes.values() for path in paths}
    for number, path in enumerate(sorted(nodes - {IOMMU})):
        make_node(host, path, 200 + number)
    make_node(host, VFIO, 7)
    make_node(host, IOMMU, 3)
    return [{"resource": case.resource, **case.entry} for case in CASES.values()]


@dataclass(frozen=True)
class Held:
    """A pod that runs: its container's first process, its id, and by resource the unit that the kubelet gave it."""

    name: str
    pid: str
    container: str
    units: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return dict(text.split("=", 1) for text in Path(f"/proc/{self.pid}/environ").read_text().split("\0") if text)

    def inside(self, path: str) -> Path:
        return Path(f"/proc/{self.pid}/root{path}")

    @property
    def mounts(self) -> list[str]:
        return [line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]


def look(plane: ControlPlane, node: NativeNode, name: str) -> Held:
    wait_for_phase(plane, name, "Running", seconds=SECONDS)
    ((container, _restarts),) = containers(plane, name).values()
    units = {one.resource: one.id for one in ledger(node).holdings if one.owner == f"default/{name}"}
    return Held(name, process_of(container), container, units)


@pytest.fixture(name="plugin", scope="module")
def _plugin(native_node: NativeNode) -> Iterator[Plugin]:
    with made_plugin(native_node, furnish) as plugin:
        yield plugin


def all_counts(plane: ControlPlane, node: NativeNode) -> dict[str, tuple[str, str]]:
    return {name: counts(plane, node, case.resource) for name, case in CASES.items()}


@pytest.fixture(name="held", scope="module")
def _held(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> Iterator[dict[str, Held]]:
    """Return a pod of each kind, and one that has a unit of all."""
    wanted = {name: (str(len(case.units)),) * 2 for name, case in CASES.items()}
    wait_until("all units", lambda: all_counts(control_plane, native_node) == wanted)
    assert plugin.runs
    made = [
        pod(name, ["sh", "-c", case.script], resources={case.resource: "1"}, node=native_node.name, user=USER)
        for name, case in CASES.items()
    ]
    control_plane.apply([*made, pod("all", ["sleep", "100000"], resources=ALL, node=native_node.name, user=USER)])
    yield {name: look(control_plane, native_node, name) for name in (*CASES, "all")}
    delete_pods(control_plane, *CASES, "all", wait=False)


def test_each_resource_has_its_own_socket_and_its_own_counts(
    plugin: Plugin, held: dict[str, Held], control_plane: ControlPlane, native_node: NativeNode
) -> None:
    assert all_counts(control_plane, native_node) == {name: (str(len(case.units)),) * 2 for name, case in CASES.items()}
    sockets = {case.resource: str(plugin.folder / f"vfio-passthrough-{case.resource.replace('/', '_')}.sock") for case in CASES.values()}
    assert {one["resource"]: one["socket"] for one in plugin.state()["resources"] if one["registered"]} == sockets
    assert {str(path) for path in plugin.folder.glob("vfio-*")} == set(sockets.values())
    assert ledger(native_node).allocatable.items() >= {case.resource: frozenset(case.units) for case in CASES.values()}.items()
    assert [set(held[name].units) for name in CASES] == [{case.resource} for case in CASES.values()]


def variables(case: Case, unit: str) -> dict[str, str]:
    value = case.units[unit]
    companions = {"HOSTDEV_COMPANIONS_EXAMPLE_COM_CARD": f"{value}={value[:-1]}1"} if case is CASES["card"] else {}
    return {case.variable: value, **companions} if case.variable else {}


def ours(one: Held) -> dict[str, str]:
    prefixes = ("PCI_RESOURCE", "MDEV_PCI_RESOURCE", "USB_RESOURCE", "HOSTDEV")
    return {name: value for name, value in one.environment.items() if name.startswith(prefixes)}


def nodes_of(one: Held) -> dict[str, tuple[int, int]]:
    """Return the character devices that a container has beside those that every container has, with their numbers."""
    usual = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}
    found = {}
    for folder, dummy, names in os.walk(one.inside("/dev")):
        for state, path in [((Path(folder) / name).lstat(), Path(folder) / name) for name in names]:
            if stat.S_ISCHR(state.st_mode) and path.name not in usual and path.parent.name != "pts":
                place = "/" + str(path.relative_to(one.inside("/")))
                found[place] = (os.major(state.st_rdev), os.minor(state.st_rdev))
    return found


def numbers(host: FakeHost, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    states = {path: (host.base / path.lstrip("/")).stat() for path in paths}
    return {path: (os.major(state.st_rdev), os.minor(state.st_rdev)) for path, state in states.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_pod_gets_its_variable_its_nodes_and_its_grant_folder(plugin: Plugin, held: dict[str, Held], name: str) -> None:
    case, one = CASES[name], held[name]
    (unit,) = one.units.values()
    assert ours(one) == variables(case, unit)
    assert nodes_of(one) == numbers(plugin.host, [*([VFIO] if case.vfio else []), *case.owned(unit)])
    folders = [case.grant(plugin.host, unit), *([IN_CONTAINER] if name == "iommufd" else [])]
    assert sorted(path for path in one.mounts if path.startswith((str(plugin.host.base), IN_CONTAINER))) == sorted(folders)


@pytest.mark.parametrize("name", CASES)
def test_a_container_is_granted_its_own_nodes_and_can_use_them(
    plugin: Plugin, held: dict[str, Held], native_node: NativeNode, name: str
) -> None:
    case, one = CASES[name], held[name]
    (unit,) = one.units.values()
    nodes = case.owned(unit)
    former = [(plugin.host.base / path[1:]).stat() for path in (*nodes, VFIO)]
    assert [one.inside(path).stat().st_uid for path in nodes] == [0] * len(nodes)
    assert ask(one.pid, case.grant(plugin.host, unit))["answers"] == [{"memlock_bytes": 0, "nodes": nodes}]
    assert [one.inside(path).stat().st_uid for path in nodes] == [USER] * len(nodes)
    if case.vfio:
        assert one.inside(VFIO).stat().st_mode & 0o777 == 0o666
    after = [(plugin.host.base / path[1:]).stat() for path in (*nodes, VFIO)]
    assert [(state.st_uid, state.st_mode) for state in after] == [(state.st_uid, state.st_mode) for state in former]
    word = "written" if case.writes else "read"
    opened = {f"{word} {path}" for path in nodes}
    wait_until("the container opens them", lambda: set(native_node.pod_log("default", name, "main").splitlines()) == opened)


def test_one_pod_has_units_of_every_kind_each_with_its_grant(plugin: Plugin, held: dict[str, Held]) -> None:
    one = held["all"]
    given = [(case, one.units[case.resource]) for case in CASES.values()]
    assert ours(one) == {name: value for case, unit in given for name, value in variables(case, unit).items()}
    assert nodes_of(one) == numbers(plugin.host, {VFIO, *(path for case, unit in given for path in case.owned(unit))})
    answers = ask(one.pid, *(case.grant(plugin.host, unit) for case, unit in given))["answers"]
    # /dev/iommu is there for the card and for itself, and every VFIO device may need it
    nodes = [list(dict.fromkeys([*case.owned(unit), *([IOMMU] if case.vfio else [])])) for case, unit in given]
    assert answers == [{"memlock_bytes": 0, "nodes": paths} for paths in nodes]
    assert {one.inside(path).stat().st_uid for path in nodes_of(one) if path != VFIO} == {USER}
    (refused,) = ask(one.pid, CASES["usb"].grant(plugin.host, one.units["example.com/stick"]), memlock=MANY)["answers"]
    assert "x 3 granted devices + 1 GiB" in refused["fault"]["cause"]


def test_memory_is_locked_up_to_the_hard_limit_and_the_systems_refusal_is_told(plugin: Plugin, held: dict[str, Held]) -> None:
    case, one = CASES["card"], held["card"]
    folder, limits = case.grant(plugin.host, one.units[case.resource]), (4 * KIB, 64 * KIB)
    # the system lets the service change the limits of its own user's processes, within the hard one, and of no other user's
    raised = ask(one.pid, folder, memlock=64 * KIB, limits=limits, user=0)
    assert (raised["answers"][0]["memlock_bytes"], raised["limits"]) == (64 * KIB, [64 * KIB, 64 * KIB])
    for user, wanted in ((0, 65 * KIB), (USER, 65 * KIB), (USER, 64 * KIB)):
        told = ask(one.pid, folder, memlock=wanted, limits=limits, user=user)
        fault = told["answers"][0]["fault"]
        assert (fault["what"], fault["hint"]) == ("raise the memory-lock limit", "the service needs CAP_SYS_RESOURCE")
        assert fault["cause"] == "[Errno 1] Operation not permitted; its hard limit is 65536 bytes"
        assert fault["subject"].endswith(f"(uid {user}) to {wanted}")
        assert told["limits"] == list(limits)


@pytest.mark.parametrize("name", ["iommufd", "all"])
def test_a_container_is_handed_an_opened_descriptor_once(plugin: Plugin, held: dict[str, Held], name: str) -> None:
    one = held[name]
    (place,) = (plugin.host.base / "iommufd").rglob(f"{one.units['devices.kubevirt.io/iommufd']}.sock")
    handed = ask(one.pid, handovers=[IN_CONTAINER])["handed"]
    assert handed == [["00", (plugin.host.base / IOMMU[1:]).stat().st_rdev]]
    assert not place.exists()


def test_a_unit_that_fails_while_it_is_used_leaves_its_pod_alone(
    plugin: Plugin, held: dict[str, Held], control_plane: ControlPlane, native_node: NativeNode
) -> None:
    healthy = all_counts(control_plane, native_node)
    lost = {name: case.owned(held[name].units[case.resource])[0] for name, case in CASES.items()}
    places = [plugin.host.base / path[1:] for path in lost.values()]
    for place in places:
        place.rename(place.with_name(f"{place.name}.away"))
    fallen = {name: (str(len(case.units)), "0" if "all" in case.nodes else "1") for name, case in CASES.items()}
    wait_until("fewer are allocatable", lambda: all_counts(control_plane, native_node) == fallen)
    reasons = {unit["resource"]: unit["reason"] for unit in plugin.state()["units"] if unit["health"] == "Unhealthy"}
    assert all(lost[name] in reasons[case.resource] for name, case in CASES.items())
    for place in places:
        place.with_name(f"{place.name}.away").rename(place)
    wait_until("all are allocatable", lambda: all_counts(control_plane, native_node) == healthy)
    assert {name: containers(control_plane, name) for name in held} == {name: {"main": (one.container, 0)} for name, one in held.items()}

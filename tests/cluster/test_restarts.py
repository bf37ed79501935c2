"""The device plugin on a real kubelet while kubelets, the plugin itself, its configuration and pods come and go."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.checkpoint import FILE
from ansible_collections.vfio.passthrough.tests.cluster.churn import Churn
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import (
    Plugin,
    containers,
    counts,
    delete_pods,
    hold_pod,
    ledger,
    made_plugin,
    make_node,
    run_pod,
    wait_until,
)
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

RESOURCE, EXTRA = "example.com/board", "example.com/extra"
VARIABLE = "PCI_RESOURCE_EXAMPLE_COM_BOARD"
ENTRY = {"resource": RESOURCE, "select": {"id": "10de:2684"}}
ADDRESSES = {"16": "0000:01:00.0", "17": "0000:02:00.0", "18": "0000:03:00.0", "19": "0000:04:00.0"}
ALL = str(len(ADDRESSES))
# what becomes of a pod that the scheduler placed before it knew that the plugin is away: reason, and a part of the message
AWAY = [
    ("UnexpectedAdmissionError", "no healthy devices present; cannot allocate unhealthy devices"),
    ("UnexpectedAdmissionError", "code = Unavailable"),
    ("UnexpectedAdmissionError", "code = Canceled desc = grpc: the client connection is closing"),
    (f"OutOf{RESOURCE}", ""),
]


def furnish(host: FakeHost) -> list[object]:
    for number, (group, address) in enumerate(ADDRESSES.items()):
        host.function(address, driver="vfio-pci", group=group)
        make_node(host, f"/dev/vfio/{group}", 200 + number)
    host.function("0000:0a:00.0", "10de:1111", driver="vfio-pci", group="30")
    for path, minor in (("/dev/vfio/30", 210), ("/dev/vfio/vfio", 7)):
        make_node(host, path, minor)
    return [ENTRY]


@pytest.fixture(name="plugin", scope="module")
def _plugin(native_node: NativeNode) -> Iterator[Plugin]:
    with made_plugin(native_node, furnish) as plugin:
        yield plugin


def all_units(plane: ControlPlane, node: NativeNode) -> None:
    wait_until("all units", lambda: counts(plane, node, RESOURCE) == (ALL, ALL))


def values_of(plane: ControlPlane, node: NativeNode, amount: str) -> list[str]:
    """Return what a pod that asks for so many units is given."""
    return sorted(run_pod(plane, node, "takes", ["sh", "-c", f"echo ${VARIABLE}"], {RESOURCE: amount}).strip().split(","))


def kill_and_start(node: NativeNode) -> None:
    node.kill_kubelet()
    node.start_kubelet()


def restart_kubelets(plugin: Plugin, plane: ControlPlane, node: NativeNode, rounds: int, every: int = 1) -> list[float]:
    """End kubelets under a pod that holds a unit, by turns kindly and not; return the seconds from each new one to our registration.

    every: after how many of them another pod is given all other units. That takes long: a new kubelet looks for pods some seconds later.
    """
    all_units(plane, node)
    hold_pod(plane, node, "keeps", {RESOURCE: "1"})
    before = containers(plane, "keeps")
    ((held, owner),) = holders(node)
    others = [address for unit, address in ADDRESSES.items() if unit != held]
    seconds, files = [], plugin.open_files()
    for number in range(1, rounds + 1):
        registered = len(plugin.registered(RESOURCE))
        (NativeNode.restart_kubelet if number % 2 else kill_and_start)(node)
        plugin.wait_registered(RESOURCE, registered)
        seconds.append(plugin.registered(RESOURCE)[-1] - (plugin.folder / "kubelet.sock").lstat().st_mtime)
        all_units(plane, node)
        if number % every == 0:
            assert values_of(plane, node, str(len(others))) == others
        wait_until("the kubelet knows the holder", lambda: holders(node) == [(held, owner)])
        assert containers(plane, "keeps") == before
    assert plugin.open_files() <= files + 2
    delete_pods(plane, "keeps")
    return seconds


def holders(node: NativeNode) -> list[tuple[str, str]]:
    return [(one.id, one.owner) for one in ledger(node).holders(RESOURCE)]


def test_a_pod_keeps_its_unit_through_ten_kubelets(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    assert len(restart_kubelets(plugin, control_plane, native_node, 10, every=5)) == 10


def lose_checkpoint(folder: Path) -> None:
    (folder / FILE).unlink()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(("alive", "lose"), [(False, lose_checkpoint), (True, empty), (False, shutil.rmtree)])
def test_the_plugin_follows_a_kubelet_that_lost(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode, lose: Callable[[Path], None], alive: bool
) -> None:
    all_units(control_plane, native_node)
    hold_pod(control_plane, native_node, "forgotten", {RESOURCE: "1"})
    before = containers(control_plane, "forgotten")
    registered = len(plugin.registered(RESOURCE))
    if alive:
        lose(native_node.device_plugins)
    native_node.kill_kubelet()
    if not alive:
        lose(native_node.device_plugins)
    native_node.start_kubelet()
    plugin.wait_registered(RESOURCE, registered)
    all_units(control_plane, native_node)
    assert containers(control_plane, "forgotten") == before
    # such a kubelet does not know what running pods hold: nobody may ask for a unit before they are gone
    delete_pods(control_plane, "forgotten")
    assert values_of(control_plane, native_node, ALL) == list(ADDRESSES.values())


def kill_plugins(plugin: Plugin, plane: ControlPlane, node: NativeNode, rounds: int, seed: int = 7) -> Churn:
    """Kill the plugin while pods come and go, and start it anew; return what became of the pods.

    The moments are random: of its start, of its life, and just behind an allocation.
    """
    all_units(plane, node)
    chance = random.Random(seed)
    files = plugin.files()
    with Churn(plane, node, RESOURCE, width=len(ADDRESSES) + 1, seed=seed) as churn:
        for number in range(rounds):
            registered, given = len(plugin.registered(RESOURCE)), len(churn.given)
            assert plugin.stop(signal.SIGKILL) == -signal.SIGKILL
            time.sleep(chance.uniform(0, 0.3))
            plugin.start()
            if number % 4:
                plugin.wait_registered(RESOURCE, registered)
            if number % 4 > 1:
                churn.wait_given(given)
            time.sleep(chance.uniform(0, 0.1 if number % 4 > 1 else 1.0))
        all_units(plane, node)
        churn.wait_given(len(churn.given) + 2 * len(ADDRESSES))
    assert values_of(plane, node, ALL) == list(ADDRESSES.values())
    assert plugin.files() == files
    return churn


def test_the_plugin_may_be_killed_at_any_moment(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    check_killed(kill_plugins(plugin, control_plane, native_node, 20))


def check_killed(churn: Churn) -> None:
    """No unit had two pods at a time, every unit was given, and pods failed by the plugin's absence alone."""
    assert (churn.doubles, churn.overlaps) == ([], [])
    assert {unit for _owner, unit in churn.given} == set(ADDRESSES)
    assert {one.value for one in churn.succeeded} <= set(ADDRESSES.values())
    assert len(churn.succeeded) > len(ADDRESSES)
    assert [one for one in churn.failed if not any(one.reason == reason and text in one.message for reason, text in AWAY)] == []


MORE = {"resource": EXTRA, "select": {"id": "10de:1111"}}
# files that are wrong, and what is said of each
WRONG = {
    '{"devices": [': "not JSON",
    "": "not JSON",
    json.dumps({"device": [ENTRY, MORE]}): "an object with the keys devices and permitted_host_devices is needed",
    json.dumps({"devices": [ENTRY, {**MORE, "resource": "extra"}]}): "devices[1].resource: 'extra'",
    json.dumps({"devices": [ENTRY, {**ENTRY, "resource": EXTRA}]}): "a device serves one resource",
}


def reload_under_load(plugin: Plugin, plane: ControlPlane, node: NativeNode, rounds: int, seed: int = 11) -> Churn:
    """Declare one resource more, then something wrong, then the one resource alone, while pods come and go; return their fate."""
    all_units(plane, node)
    chance = random.Random(seed)
    heard, registered, files = len(kubelet_log(node)), plugin.registered(RESOURCE), plugin.open_files()
    with Churn(plane, node, RESOURCE, width=len(ADDRESSES) + 1, seed=seed) as churn:
        for number in range(rounds):
            given = len(churn.given)
            plugin.declare(*chance.sample([ENTRY, MORE], 2), whole=chance.random() < 0.5)
            wait_until("the new resource", lambda: counts(plane, node, EXTRA) == ("1", "1"))
            text, cause = list(WRONG.items())[number % len(WRONG)]
            told = len(plugin.log.read_text())
            plugin.write(text, whole=chance.random() < 0.5)
            wait_until(f"{cause} is told", lambda: refused(plugin.log.read_text()[told:], cause))  # noqa: B023
            if number % 2 == 0:
                assert run_pod(plane, node, "extra", ["sh", "-c", "echo $PCI_RESOURCE_EXAMPLE_COM_EXTRA"], {EXTRA: "1"}) == "0000:0a:00.0\n"
            churn.wait_given(given)
            assert counts(plane, node, RESOURCE) == (ALL, ALL)
            plugin.declare(ENTRY, whole=chance.random() < 0.5)
            wait_until("the resource is gone", lambda: counts(plane, node, EXTRA)[1] == "0")
        churn.wait_given(len(churn.given) + len(ADDRESSES))
    assert (plugin.registered(RESOURCE), plugin.open_files() <= files + 2) == (registered, True)
    since = kubelet_log(node)[heard:]
    assert since.count(f'"Device plugin disconnected" resource="{EXTRA}"') == rounds
    assert not [line for line in since.splitlines() if "lugin" in line and f'="{RESOURCE}"' in line and "Updated capacity" not in line]
    return churn


def refused(text: str, cause: str) -> bool:
    return any(cause in line and "the former declaration stays" in line for line in text.splitlines())


def kubelet_log(node: NativeNode) -> str:
    return (node.children.logs / "kubelet.log").read_text(encoding="utf-8", errors="replace")


def check_unnoticed(churn: Churn) -> None:
    assert (churn.doubles, churn.overlaps, churn.failed) == ([], [], [])
    assert {unit for _owner, unit in churn.given} == set(ADDRESSES)


def test_pods_notice_nothing_of_what_is_declared_beside_them(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    check_unnoticed(reload_under_load(plugin, control_plane, native_node, len(WRONG)))

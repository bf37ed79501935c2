"""What has to hold the hundredth time as it did the first: HOSTDEV_SOAK repetitions (default 20 on the worker, 100 on the native node)."""

from __future__ import annotations

import os
import statistics

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import Plugin, counts, wait_until
from ansible_collections.vfio.passthrough.tests.cluster.test_restarts import (
    ALL,
    RESOURCE,
    all_units,
    check_killed,
    check_unnoticed,
    kill_plugins,
    reload_under_load,
    restart_kubelets,
)
from ansible_collections.vfio.passthrough.tests.harness.say import say
from ansible_collections.vfio.passthrough.tests.vm import adhoc
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker
from ansible_collections.vfio.passthrough.tests.vm.test_binding import BOUND, DEVICES, GPUS, OURS, drivers

REPETITIONS = int(os.environ.get("HOSTDEV_SOAK", "20"))
KUBELETS = int(os.environ.get("HOSTDEV_SOAK", "100"))
KILLS = 2 * KUBELETS
COMPLAINTS = "dmesg | grep -cE 'BUG:|WARNING:|Oops|hung task' || true"


def test_devices_go_there_and_back(worker: Worker) -> None:
    before = worker.ssh(COMPLAINTS)
    for number in range(REPETITIONS):
        bound = adhoc.run(worker, "pci_binding", devices=DEVICES)
        assert bound["changed"], f"round {number}: {bound}"
        assert drivers(worker) == BOUND, f"round {number}"
        released = adhoc.run(worker, "pci_binding", state="released")
        assert released["changed"], f"round {number}: {released}"
        assert drivers(worker) == GPUS, f"round {number}"
    assert worker.ssh(OURS) == ""
    assert worker.ssh(COMPLAINTS) == before


@pytest.mark.timeout(2 * 3600)
def test_a_pod_keeps_its_unit_through_kubelets(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = restart_kubelets(plugin, control_plane, native_node, KUBELETS)
    with capsys.disabled():
        middle = f"median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s"
        say(f"{len(seconds)} kubelets, from the new one's socket to our registration: {middle}")


@pytest.mark.timeout(2 * 3600)
def test_the_plugin_may_be_killed_at_any_moment(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    check_killed(kill_plugins(plugin, control_plane, native_node, KILLS))


@pytest.mark.timeout(2 * 3600)
def test_pods_notice_nothing_of_what_is_declared_beside_them(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    check_unnoticed(reload_under_load(plugin, control_plane, native_node, KUBELETS))


def test_nodes_that_come_and_go_leave_nothing_behind(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    all_units(control_plane, native_node)
    node = plugin.host.base / "dev/vfio/16"
    away = node.with_name("away")
    before = plugin.open_files()
    for number in range(REPETITIONS):
        node.rename(away)
        wait_until(f"one less in round {number}", lambda: counts(control_plane, native_node, RESOURCE) == (ALL, str(int(ALL) - 1)))
        away.rename(node)
        all_units(control_plane, native_node)
    assert plugin.open_files() <= before + 2

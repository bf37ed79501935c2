"""What has to hold the hundredth time as it did the first: HOSTDEV_SOAK repetitions (default 20)."""

from __future__ import annotations

import os

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import Plugin, counts, wait_until
from ansible_collections.vfio.passthrough.tests.cluster.test_device_plugin import RESOURCE
from ansible_collections.vfio.passthrough.tests.vm import adhoc
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker
from ansible_collections.vfio.passthrough.tests.vm.test_binding import BOUND, DEVICES, GPUS, OURS, drivers

REPETITIONS = int(os.environ.get("HOSTDEV_SOAK", "20"))
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


@pytest.mark.parametrize("way", ["restart_kubelet", "kill_kubelet"])
def test_the_plugin_outlives_kubelets(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode, way: str) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node, RESOURCE) == ("2", "2"))
    before = plugin.open_files()
    for number in range(REPETITIONS):
        getattr(native_node, way)()
        if way == "kill_kubelet":
            native_node.start_kubelet()
        wait_until(f"two units in round {number}", lambda: counts(control_plane, native_node, RESOURCE) == ("2", "2"))
    assert plugin.open_files() <= before + 2


def test_nodes_that_come_and_go_leave_nothing_behind(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node, RESOURCE) == ("2", "2"))
    node = plugin.host.base / "dev/vfio/16"
    away = node.with_name("away")
    before = plugin.open_files()
    for number in range(REPETITIONS):
        node.rename(away)
        wait_until(f"one unit in round {number}", lambda: counts(control_plane, native_node, RESOURCE)[1] == "1")
        away.rename(node)
        wait_until(f"two units in round {number}", lambda: counts(control_plane, native_node, RESOURCE)[1] == "2")
    assert plugin.open_files() <= before + 2

"""The device plugin on a real kubelet, over a made host whose nodes are real character devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.holders import ask_holders
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev import cli
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.renumbering import renumbering
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import released
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import Former, Record, write_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import (
    USER,
    Plugin,
    counts,
    delete_pods,
    hold_pod,
    ledger,
    made_plugin,
    make_cards,
    make_node,
    run_pod,
    wait_until,
)
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

RESOURCE = "example.com/gpu"
VARIABLE = "PCI_RESOURCE_EXAMPLE_COM_GPU"


def furnish(host: FakeHost) -> list[object]:
    make_cards(host)
    return [{"resource": RESOURCE, "select": {"id": "10de:2684"}, "functions": "all"}]


@pytest.fixture(name="plugin", scope="module")
def _plugin(native_node: NativeNode) -> Iterator[Plugin]:
    with made_plugin(native_node, furnish) as plugin:
        yield plugin


def two_units(plane: ControlPlane, node: NativeNode) -> None:
    wait_until("two units", lambda: counts(plane, node, RESOURCE) == ("2", "2"))


def test_a_resource_becomes_allocatable(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    two_units(control_plane, native_node)
    wait_until("registered in the state file", lambda: plugin.state()["resources"][0]["registered"])


def test_a_pod_gets_variables_nodes_and_grant_folders(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    two_units(control_plane, native_node)
    text = run_pod(control_plane, native_node, "gets", ["sh", "-c", f"env; ls -ln /dev/vfio; find {plugin.host.base}/g"], {RESOURCE: "2"})
    assert set(next(line for line in text.splitlines() if line.startswith(VARIABLE)).split("=")[1].split(",")) == {
        "0000:01:00.0",
        "0000:02:00.0",
    }
    assert "0000:01:00.0=0000:01:00.1" in text
    for node in ("vfio", "16", "17"):
        assert f" {node}\n" in text
    for group in ("16", "17"):
        assert f"{plugin.host.base}/g/EXAMPLE_COM_GPU/{group}/grant.sock" in text


def test_each_container_of_a_pod_is_given_its_own_unit(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    two_units(control_plane, native_node)
    both = pod("both", ["sh", "-c", f"env; ls /dev/vfio; ls {plugin.host.base}/g/*"], resources={RESOURCE: "1"}, node=native_node.name)
    both["spec"]["containers"].append({**both["spec"]["containers"][0], "name": "other"})
    control_plane.apply(both)
    wait_for_phase(control_plane, "both", "Succeeded")
    texts = [native_node.pod_log("default", "both", name).splitlines() for name in ("main", "other")]
    delete_pods(control_plane, "both")
    units = {f"{VARIABLE}=0000:01:00.0": "16", f"{VARIABLE}=0000:02:00.0": "17"}
    assert [sorted(line for text in texts for line in text if line.startswith(VARIABLE))] == [sorted(units)]
    for text in texts:
        (unit,) = [units[line] for line in text if line.startswith(VARIABLE)]
        assert [line for line in text if line in units.values()] == [unit, unit]


def test_a_plugin_restart_is_taken_up(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    assert plugin.stop() == 0
    assert not [one for one in native_node.device_plugins.iterdir() if one.name.startswith(("vfio-passthrough", ".vfio"))]
    wait_until("none allocatable", lambda: counts(control_plane, native_node, RESOURCE)[1] == "0")
    plugin.start()
    two_units(control_plane, native_node)


def test_a_node_that_goes_and_returns(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    two_units(control_plane, native_node)
    for group in ("16", "17"):
        (plugin.host.base / "dev/vfio" / group).unlink()
    wait_until("none allocatable", lambda: counts(control_plane, native_node, RESOURCE) == ("2", "0"))
    wait_until("why", lambda: all("does not exist" in unit["reason"] for unit in plugin.state()["units"]))
    make_node(plugin.host, "/dev/vfio/16", 3)
    make_node(plugin.host, "/dev/vfio/17", 5)
    two_units(control_plane, native_node)


def test_the_ledger_tells_what_may_be_given_and_who_holds_what(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    two_units(control_plane, native_node)
    hold_pod(control_plane, native_node, "holds", {RESOURCE: "1"})
    told = ledger(native_node)
    delete_pods(control_plane, "holds")
    assert told.allocatable[RESOURCE] == {"16", "17"}
    (held,) = told.holders(RESOURCE)
    address = {"16": "0000:01:00.0", "17": "0000:02:00.0"}[held.id]
    assert (held.owner, held.container, held.values) == ("default/holds", "main", (address,))
    assert f"{plugin.host.base}/dev/vfio/{held.id}" in held.nodes
    assert ledger(native_node).holders(RESOURCE) == ()


@pytest.mark.usefixtures("plugin")
def test_a_pod_that_ended_holds_nothing_though_it_is_not_deleted(control_plane: ControlPlane, native_node: NativeNode) -> None:
    two_units(control_plane, native_node)
    control_plane.apply(pod("ends", ["true"], resources={RESOURCE: "2"}, node=native_node.name, user=USER))
    wait_for_phase(control_plane, "ends", "Succeeded")
    wait_until("nobody holds anything", lambda: ledger(native_node).holders(RESOURCE) == ())
    delete_pods(control_plane, "ends")


def regroup(host: FakeHost, bus: str, before: str, after: str) -> None:
    """Give a card's functions another group number, as another boot may."""
    groups = host.base / "sys/kernel/iommu_groups"
    (groups / before).rename(groups / after)
    for function in range(2):
        link = host.folder_of(f"0000:{bus}:00.{function}") / "iommu_group"
        link.unlink()
        link.symlink_to(os.path.relpath(groups / after, link.parent))
    (host.base / "dev/vfio" / before).rename(host.base / "dev/vfio" / after)


def test_b30_groups_that_changed_their_numbers_are_told_from_the_kubelets_own_store(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    two_units(control_plane, native_node)
    hold_pod(control_plane, native_node, "stale", {RESOURCE: "1"})
    (held,) = ledger(native_node).holders(RESOURCE)
    bus = {"16": "01", "17": "02"}[held.id]
    assert plugin.stop() == 0
    regroup(plugin.host, bus, held.id, "28")
    plugin.start()
    (told,) = wait_until("the state tells it", lambda: plugin.state().get("renumbered"))
    uid = control_plane.get("pod", "stale")["metadata"]["uid"]
    assert (told["pod_uid"], told["container"], told["ids"], told["values"]) == (uid, "main", [held.id], [f"0000:{bus}:00.0"])
    assert f"0000:{bus}:00.0 is unit 28 now" in told["detail"]
    assert f"renumbered: unit {held.id} was 0000:{bus}:00.0" in plugin.log.read_text()
    evidence, mend = renumbering(plugin.state(), ledger(native_node), RESOURCE, "28", (f"0000:{bus}:00.0",))
    assert (evidence, "delete pod default/stale: " in mend) == (f"renumbered: {told['detail']}", True)
    delete_pods(control_plane, "stale")
    assert plugin.stop() == 0
    wait_until("none allocatable", lambda: counts(control_plane, native_node, RESOURCE)[1] == "0")
    regroup(plugin.host, bus, "28", held.id)
    plugin.start()
    two_units(control_plane, native_node)


def test_a_release_leaves_a_device_to_the_pod_that_the_kubelet_names(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    two_units(control_plane, native_node)
    hold_pod(control_plane, native_node, "keeps", {RESOURCE: "2"})
    functions = {f"0000:{bus}:00.0": Former("10de:2684", "nvidia", resource=RESOURCE) for bus in ("01", "02")}
    write_record(plugin.host.root, Record(functions))
    node = Root(runner=program)
    asked = ask_holders(node, str(native_node.kubelet_folder))
    plan = released.plan_released(plugin.host.root, lambda: asked)
    with pytest.raises(Busy) as caught:
        released.check_released(plan)
    for bus, group in (("01", "16"), ("02", "17")):
        assert f"pod default/keeps holds 0000:{bus}:00.0 (unit {group} of {RESOURCE})" in caught.value.cause
    released.check_released(plan, force=True)
    delete_pods(control_plane, "keeps")
    plan = released.plan_released(plugin.host.root, lambda: ask_holders(node, str(native_node.kubelet_folder)))
    assert (plan.held, plan.unasked) == ((), "")
    write_record(plugin.host.root, Record())


def program(command: Sequence[str], timeout: float) -> Done:
    """Run the node's program from this tree."""
    done = subprocess.run([sys.executable, "-m", cli.__name__, *command[1:]], capture_output=True, text=True, timeout=timeout, check=False)
    return Done(done.returncode, done.stdout, done.stderr)

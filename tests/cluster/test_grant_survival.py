"""Grants over restarts, on a real kubelet: a container that starts again gets its folders from the kubelet's stored answer."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import (
    USER,
    Plugin,
    ask,
    containers,
    counts,
    delete_pods,
    ledger,
    made_plugin,
    make_cards,
    process_of,
    wait_until,
)
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

RESOURCE = "example.com/gpu"
ENTRY = {"resource": RESOURCE, "select": {"id": "10de:2684"}}
POD = "survives"


def furnish(host: FakeHost) -> list[object]:
    make_cards(host)
    return [ENTRY]


@pytest.fixture(name="plugin", scope="module")
def _plugin(native_node: NativeNode) -> Iterator[Plugin]:
    with made_plugin(native_node, furnish) as plugin:
        yield plugin


class Holder:
    """A pod that holds one unit, whose container the kubelet starts again whenever it ends."""

    def __init__(self, plugin: Plugin, plane: ControlPlane, node: NativeNode) -> None:
        self.plane = plane
        wait_until("two units", lambda: counts(plane, node, RESOURCE) == ("2", "2"))
        made = pod(POD, ["sleep", "100000"], resources={RESOURCE: "1"}, node=node.name, user=USER)
        made["spec"]["restartPolicy"] = "Always"
        plane.apply(made)
        self.container, self.restarts = wait_until("the container", lambda: containers(plane, POD).get("main"))
        (held,) = ledger(node).holders(RESOURCE)
        self.unit = held.id
        self.folder = Path(plugin.host.base, "g/EXAMPLE_COM_GPU", held.id)

    @property
    def pid(self) -> str:
        return process_of(self.container)

    def ask(self) -> dict[str, Any]:
        answer: dict[str, Any] = ask(self.pid, str(self.folder))["answers"][0]
        return answer

    def restart(self) -> None:
        """End the container and wait for its successor."""
        os.kill(int(self.pid), signal.SIGKILL)

        def successor() -> tuple[str, int] | None:
            found = containers(self.plane, POD).get("main")
            return found if found and found[1] > self.restarts else None

        self.container, self.restarts = wait_until("the container's successor", successor)


@pytest.fixture(name="holder")
def _holder(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> Iterator[Holder]:
    holder = Holder(plugin, control_plane, native_node)
    yield holder
    delete_pods(control_plane, POD)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_running_container_keeps_its_folder_when_the_plugin_starts_again(plugin: Plugin, holder: Holder, sign: signal.Signals) -> None:
    assert holder.ask() == {"memlock_bytes": 0, "nodes": [f"/dev/vfio/{holder.unit}"]}
    before = len(plugin.registered(RESOURCE))
    plugin.stop(sign)
    plugin.start()
    wait_until("registered", lambda: len(plugin.registered(RESOURCE)) > before)
    assert holder.ask()["nodes"] == [f"/dev/vfio/{holder.unit}"]


def test_a_container_starts_again_when_run_is_empty_and_its_resource_is_not_declared(plugin: Plugin, holder: Holder) -> None:
    plugin.stop()
    shutil.rmtree(plugin.host.base / "g")
    plugin.declare({"resource": "example.com/other", "select": {"id": "ffff:ffff"}})
    plugin.start()
    wait_until("the folder of what is held", (holder.folder / "grant.sock").is_socket)
    assert (plugin.host.base / "g").stat().st_mode & 0o777 == 0o700
    holder.restart()
    assert "this node does not have it now" in holder.ask()["fault"]["cause"]
    plugin.declare(ENTRY)
    wait_until("granted again", lambda: holder.ask().get("nodes") == [f"/dev/vfio/{holder.unit}"])

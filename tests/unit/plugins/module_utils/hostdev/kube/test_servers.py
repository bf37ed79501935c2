"""Resources over time: their kinds, what cannot be looked at, and the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import IOMMUFD, PCI
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import SOCKET
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Found
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import kinds
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import service as module
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import Service
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import RESOURCE, STANDS, PluginBench


@pytest.fixture(name="bench")
def _bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBench]:
    bench = PluginBench(tmp_path_factory.mktemp("s"))
    yield bench
    bench.stop()
    bench.kubelet.stop()


def test_a_resource_of_another_kind_gets_another_server(bench: PluginBench) -> None:
    bench.kubelet.start()
    bench.start()
    until(lambda: len(bench.kubelet.registrations) == 1, "the first registration")
    STANDS[IOMMUFD].make(bench.host)
    bench.declare({"resource": RESOURCE, "node": "/dev/iommu", "count": 1})
    until(lambda: len(bench.kubelet.registrations) == 2, "another registration")
    told = [(one.options.pre_start_required, one.options.get_preferred_allocation_available) for one in bench.kubelet.registrations]
    assert told == [(False, True), (True, False)]
    until(lambda: bench.kubelet.last() == {"gpu0": "Healthy"}, "the node's list")


def test_an_allocate_call_that_is_late_makes_no_socket_again(bench: PluginBench) -> None:
    service = Service(bench.host.root, bench.options)
    service.refresh()
    socket = Path(bench.options.grants, "EXAMPLE_COM_GPU", "16", SOCKET)
    assert socket.is_socket()
    service.stop()
    with pytest.raises(Busy, match="it is ending"):
        service.refresh()
    assert not socket.exists()


def test_a_kind_that_cannot_be_looked_at_is_told_once_and_looked_at_again(
    bench: PluginBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken: list[str] = []

    def find(*given: Any) -> Found:
        return Found(given[2], faults=tuple(broken)) if broken else kinds.find(*given)

    monkeypatch.setattr(module, "find", find)
    service = bench.service = Service(bench.host.root, bench.options)
    service.refresh()
    broken.append("cannot list PCI functions: /sys: Input/output error")
    assert [service.refresh(), service.refresh()] == [1.0, 1.0]
    assert caplog.text.count("Input/output error; the last state stays") == 1
    assert len(json.loads(bench.options.state.read_text(encoding="utf-8"))["units"]) == 2
    broken.clear()
    assert service.refresh() != 1.0
    service.stop()
    bench.service = None


def test_the_state_tells_why_a_resource_is_not_registered(bench: PluginBench) -> None:
    bench.kubelet.refusal = "not today"
    bench.kubelet.start()
    bench.start()

    def cause() -> str:
        state = bench.options.state
        (resource,) = json.loads(state.read_text(encoding="utf-8"))["resources"] if state.exists() else [{"cause": ""}]
        return str(resource["cause"])

    until(lambda: "not today" in cause(), "the kubelet's words")
    bench.kubelet.refusal = ""
    until(lambda: cause() == "", "no cause of a resource that is registered")
    assert bench.resources == {PCI: RESOURCE}

"""What is counted, as Prometheus reads it."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import PCI
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy, Fault, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import Skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import metrics
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.metrics import Collector, Tally, parse_address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import HEALTHY, PluginBench


@pytest.fixture(name="address")
def _address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBench]:
    bench = PluginBench(tmp_path_factory.mktemp("b"))
    bench.kubelet.start()
    bench.start()
    until(lambda: bench.kubelet.last() == HEALTHY, "the first list")
    yield bench
    bench.stop()
    bench.kubelet.stop()


def test_the_page_tells_what_happened(running: PluginBench, address: str) -> None:
    pytest.importorskip("prometheus_client")
    assert running.service is not None
    object.__setattr__(running.service._options, "metrics", address)
    end = running.service.serve_metrics()
    try:
        running.kubelet.allocate(["16"])
        running.node("17").unlink()
        until(lambda: running.kubelet.last() != HEALTHY, "the unit unhealthy")
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
            text = page.read().decode()
    finally:
        end()
    for line in (
        'vfio_passthrough_devices{reason="",resource="example.com/gpu",state="Healthy"} 1.0',
        'vfio_passthrough_devices{reason="no-device-node",resource="example.com/gpu",state="Unhealthy"} 1.0',
        'vfio_passthrough_allocations_total{outcome="allocated",resource="example.com/gpu"} 1.0',
        'vfio_passthrough_registered{resource="example.com/gpu"} 1.0',
        'vfio_passthrough_update_seconds_bucket{le="+Inf"} ',
    ):
        assert line in text


def test_a_unit_that_is_unhealthy_is_counted_once() -> None:
    pytest.importorskip("prometheus_client")
    unit = Offer(PCI, "a.com/gpu", "16", "0000:01:00.0", trouble="held by nvidia", trouble_code="group-not-viable")
    skipped = [Skipped(Address.parse(address), "a.com/gpu", "group-not-viable", "held") for address in ("0000:01:00.0", "0000:02:00.0")]
    collector = Collector(Tally(), Counter(), lambda: ([unit], skipped), dict)
    (devices,) = [one for one in collector.collect() if one.name == "vfio_passthrough_devices"]
    assert {one.labels["state"]: one.value for one in devices.samples} == {"Unhealthy": 1.0, "Skipped": 1.0}


def test_update_times_are_a_histogram() -> None:
    tally = Tally()
    for seconds in (0.0005, 0.02, 9.0):
        tally.updated(seconds)
    buckets, total = tally.buckets()
    assert dict(buckets)["0.001"] == 1
    assert dict(buckets)["0.025"] == 2
    assert buckets[-1] == ("+Inf", 3.0)
    assert total == pytest.approx(9.0205)


@pytest.mark.parametrize("text", ["0.0.0.0:9810", "10.0.0.1:9810", "9810", "localhost:9810", "127.0.0.1:0", "127.0.0.1:x"])
def test_only_local_addresses_are_served(text: str) -> None:
    with pytest.raises(Refused, match="serve metrics"):
        parse_address(text)
    assert parse_address("[::1]:9810") == ("::1", 9810)


def test_without_the_library_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_library", lambda: None)
    with pytest.raises(Unsupported, match="python3-prometheus-client"):
        metrics.serve("127.0.0.1:9810", None)  # type: ignore[arg-type]


def test_an_address_in_use_is_named(running: PluginBench, address: str) -> None:
    pytest.importorskip("prometheus_client")
    assert running.service is not None
    object.__setattr__(running.service._options, "metrics", address)
    end = running.service.serve_metrics()
    with pytest.raises(Fault, match=address):
        running.service.serve_metrics()
    end()


def test_a_second_instance_leaves_with_a_clear_text(tmp_path: Path) -> None:
    lock = tmp_path / "run/lock"
    with alone(lock), pytest.raises(Busy, match="another instance runs"), alone(lock):
        pass
    with alone(lock):
        pass

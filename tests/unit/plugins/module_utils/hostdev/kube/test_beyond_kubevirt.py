"""Faults of KubeVirt 1.9's device manager (B0 to B31 of the specification) that no other test is named after."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import MDEV, PCI, USB
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import kinds
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import service as module
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import HEALTHY, PluginBench
from ansible_collections.vfio.passthrough.tests.fakes.udev import UdevHost, in_testbed

Make = Callable[..., PluginBench]


@pytest.fixture(name="make")
def _make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    made: list[PluginBench] = []

    def start(*kinds: str, **options: Any) -> PluginBench:
        bench = PluginBench(tmp_path_factory.mktemp("b"), kinds or (PCI,))
        bench.options = replace(bench.options, **options)
        made.append(bench)
        bench.kubelet.start()
        bench.start()
        until(lambda: len(bench.kubelet.lists_of) == len(bench.resources), "a first list of each resource")
        return bench

    yield start
    for bench in made:
        bench.stop()
        bench.kubelet.stop()


def state(bench: PluginBench) -> dict[str, Any]:
    file = bench.options.state
    made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return made


def test_b0_a_kubelet_that_restarts_ten_times_ends_nothing(make: Make) -> None:
    bench = make(PCI, MDEV, USB)
    for number in range(10):
        bench.kubelet.restart()
        wanted = 3 * (number + 2)
        until(lambda: len(bench.kubelet.registrations) == wanted, f"registrations after restart {number}")  # noqa: B023
    assert bench.alive
    until(lambda: [one["registered"] for one in state(bench).get("resources", ())] == [True] * 3, "all registered in the state")


@contextmanager
def settled(bed: UdevHost, kind: str) -> Iterator[PluginBench]:
    bench = PluginBench(bed.host.base, (kind,))
    bench.kubelet.start()
    bench.start()
    try:
        until(bench.kubelet.last, "the first list")
        bench.settle()
        yield bench
    finally:
        bench.stop()
        bench.kubelet.stop()


def bound_later(bed: UdevHost) -> Any:
    bed.host.node("18")  # before anybody watches: of the binding the device event alone tells
    with settled(bed, PCI) as bench:
        card = bench.host.function("0000:03:00.0", driver="vfio-pci", group="18")
        bed.event(card, "bind")
        until(lambda: bench.kubelet.last() != HEALTHY, "another list")
        return [bench.kubelet.last(), len(bench.kubelet.registrations)]


def test_b1_a_device_that_is_bound_later_joins_the_list() -> None:
    assert in_testbed(bound_later) == [{**HEALTHY, "18": "Healthy"}, 1]


def test_b5_one_resource_that_fails_leaves_the_others(make: Make) -> None:
    bench = make(PCI, USB)
    bench.settle()
    # a folder in the place of the socket: this resource cannot be served again
    name = next(one for one in bench.sockets() if "stick" in one)
    (bench.folder / name).unlink()
    (bench.folder / name).mkdir()
    bench.node("16").unlink()
    gpu = bench.resources[PCI]
    until(lambda: bench.kubelet.lists_of[gpu][-1] == {"16": "Unhealthy", "17": "Healthy"}, "the other resource's change")
    assert bench.alive


def test_b13_each_skipped_device_has_a_reason_that_stays_readable(make: Make) -> None:
    bench = make()
    bench.settle()
    bench.host.function("0000:04:00.0", driver="nouveau", group="20")
    bench.node("16").unlink()  # an event; what is skipped is looked at after it

    def reasons() -> dict[str, str]:
        return {one["address"]: one["reason"] for one in state(bench).get("skipped", [])}

    until(lambda: reasons().get("0000:04:00.0") == "not-bound", "the reason")
    (unit,) = [one for one in state(bench)["units"] if one["id"] == "16"]
    assert (unit["health"], unit["code"]) == ("Unhealthy", "no-device-node")


def test_b15_nothing_is_scanned_while_nothing_happens(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"whole": 0, "quick": 0}
    whole, quick = kinds.find_skipped, kinds.find

    def counted(name: str, look: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            looks[name] += 1
            return look(*given)

        return wrapped

    monkeypatch.setattr(module, "find_skipped", counted("whole", whole))
    monkeypatch.setattr(module, "find", counted("quick", quick))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")  # signs of life are no looks
    bench = make()
    until(lambda: looks["whole"] and state(bench), "the first look at what is skipped")
    time.sleep(1.0)  # what the start itself wakes
    before = dict(looks)
    time.sleep(2.0)
    assert looks == before
    (bench.folder / "kubelet_internal_checkpoint").write_text("{}", encoding="utf-8")  # the kubelet writes it at every allocation
    time.sleep(0.5)
    assert looks == before


def unplugged_for_a_while(bed: UdevHost) -> Any:
    with settled(bed, USB) as bench:
        bench.host.unplug("1-1")
        until(lambda: len(bench.kubelet.lists) == 2, "the unit unhealthy")
        bench.settle()
        # with another number, and so at a node that nobody watches
        stick = bench.host.usb("1-1", device=9)
        bench.host.link(f"/{stick.relative_to(bench.host.base)}/subsystem", "/sys/bus/usb")
        bed.event(stick, "add")
        until(lambda: len(bench.kubelet.lists) == 3, "the unit healthy again")
        return bench.kubelet.lists[1:]


def test_b17_a_usb_device_that_goes_and_returns_is_healthy_again() -> None:
    assert in_testbed(unplugged_for_a_while) == [{"1-1": "Unhealthy", "1-2": "Healthy"}, {"1-1": "Healthy", "1-2": "Healthy"}]


def test_b19_a_machine_without_pci_is_served_all_the_same(make: Make) -> None:
    bench = make(USB)
    bench.settle()
    (bench.host.base / "sys/bus/pci/devices").rename(bench.host.base / "sys/bus/pci/gone")
    gpu = {"resource": "example.com/gpu", "select": {"id": "10de:2684"}}
    bench.declare(gpu, {"resource": bench.resources[USB], **bench.stands[USB].entry})
    until(lambda: bench.kubelet.lists_of.get("example.com/gpu") == [{}], "an empty list")
    assert bench.kubelet.lists_of[bench.resources[USB]][-1] == {"1-1": "Healthy", "1-2": "Healthy"}
    assert bench.alive

"""A device that a container holds under another resource is not offered a second time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import PCI
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import elsewhere as module
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import RESOURCE, PluginBench
from ansible_collections.vfio.passthrough.tests.fakes.podresources import FakePodResources, answer, entry, store

NEW = "example.com/new"
A = "0000:01:00.0"
HELD = entry(RESOURCE, ["16"], answer({"PCI_RESOURCE_EXAMPLE_COM_GPU": A}))
HELD_UNIT = ("16", "Unhealthy", "held-elsewhere")


@pytest.fixture(name="bench")
def _bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBench]:
    bench = PluginBench(tmp_path_factory.mktemp("e"), (PCI,), NEW)
    yield bench
    bench.stop()


@pytest.fixture(name="kubelet")
def _kubelet(bench: PluginBench) -> Iterator[FakePodResources]:
    kubelet = FakePodResources(bench.host.base)
    kubelet.start()
    yield kubelet
    kubelet.stop()


def units(bench: PluginBench) -> list[tuple[str, str, str]]:
    state = bench.options.state
    found: list[dict[str, Any]] = json.loads(state.read_text(encoding="utf-8"))["units"] if state.exists() else []
    return [(one["id"], one["health"], one["code"]) for one in found]


def test_a_unit_that_is_held_under_another_name_waits_for_its_pod(
    bench: PluginBench, kubelet: FakePodResources, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ASK_SECONDS", 0.2)
    caplog.set_level("INFO")
    kubelet.pods.append(("default/vm-a", "compute", RESOURCE, ["16"]))
    store(bench.folder, HELD)
    bench.start()
    until(lambda: units(bench) == [HELD_UNIT, ("17", "Healthy", "")], "the unit is held")
    assert f"{NEW} 16 ({A}): Unhealthy: held as {RESOURCE} by a pod until that pod ends" in caplog.text
    # the kubelet keeps an ended pod's answer in its store
    kubelet.pods.clear()
    until(lambda: units(bench)[0] == ("16", "Healthy", ""), "the unit is free")


def test_a_renamed_resource_does_not_offer_what_is_held(bench: PluginBench, kubelet: FakePodResources) -> None:
    bench.declare({"resource": RESOURCE, **bench.stands[PCI].entry})
    bench.start()
    until(lambda: len(units(bench)) == 2, "the units")
    kubelet.pods.append(("default/vm-a", "compute", RESOURCE, ["16"]))
    store(bench.folder, HELD)
    bench.declare({"resource": NEW, **bench.stands[PCI].entry})
    until(lambda: units(bench) == [HELD_UNIT, ("17", "Healthy", "")], "the unit is held")
    # and its own name is no other one
    bench.declare({"resource": RESOURCE, **bench.stands[PCI].entry})
    until(lambda: units(bench) == [("16", "Healthy", ""), ("17", "Healthy", "")], "the units as before")


@pytest.mark.parametrize("refuses", [True, False])
def test_where_the_kubelet_cannot_be_asked_its_store_counts(
    bench: PluginBench, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest, refuses: bool
) -> None:
    if refuses:
        request.getfixturevalue("kubelet").refuses = True
    store(bench.folder, HELD)
    bench.start()
    until(lambda: "what the kubelet's store says is held counts as held" in caplog.text, "the warning")
    until(lambda: units(bench)[:1] == [HELD_UNIT], "the unit is held")


def test_an_answer_of_a_pod_that_is_gone_keeps_nothing(bench: PluginBench, kubelet: FakePodResources) -> None:
    kubelet.pods.append(("default/vm-a", "compute", RESOURCE, ["17"]))
    store(bench.folder, HELD)
    bench.start()
    until(lambda: units(bench) == [("16", "Healthy", ""), ("17", "Healthy", "")], "both units free")

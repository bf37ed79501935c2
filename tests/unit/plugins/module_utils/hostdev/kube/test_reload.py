"""A configuration that changes, or is wrong: which units stay, and which go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import NODE, PCI, USB, Declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import load_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import Service
from ansible_collections.vfio.passthrough.tests.fakes.plugin import RESOURCE, PluginBench

STICK, OTHER = "example.com/stick", "example.com/other"
GPU: dict[str, Any] = {"resource": RESOURCE, "select": {"id": "10de:2684"}}
Make = Callable[..., PluginBench]
Units = list[tuple[str, str, str]]


@pytest.fixture(name="make")
def _make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Make a bench whose service is told to look, by the test and nobody else."""
    made: list[PluginBench] = []

    def start(*kinds: str) -> PluginBench:
        bench = PluginBench(tmp_path_factory.mktemp("r"), kinds)
        bench.service = Service(bench.host.root, bench.options)
        bench.service.refresh()
        made.append(bench)
        return bench

    yield start
    for bench in made:
        if bench.service is not None:
            bench.service.stop()


def look(bench: PluginBench) -> Units:
    assert bench.service is not None
    bench.service.refresh()
    units = json.loads(bench.options.state.read_text(encoding="utf-8"))["units"]
    return [(one["resource"], one["id"], one["health"]) for one in units]


def declared(bench: PluginBench, *entries: object) -> Units:
    bench.declare(*entries)
    assert bench.service is not None
    bench.service.reload()
    return look(bench)


def test_a_narrowed_selector_drops_what_it_does_not_mean_any_more(make: Make) -> None:
    bench = make(PCI)
    assert declared(bench, {**GPU, "select": {"address": "0000:01:00.0"}}) == [(RESOURCE, "16", "Healthy")]
    assert declared(bench, GPU) == [(RESOURCE, "16", "Healthy"), (RESOURCE, "17", "Healthy")]


def test_a_device_that_goes_to_another_resource_leaves_the_former_one(make: Make) -> None:
    bench = make(PCI)
    second = {"resource": OTHER, "select": {"address": "0000:02:00.0"}}
    # the entry of the first is the same as before, and comes behind: the first that claims a group has it
    assert declared(bench, second, GPU) == [(RESOURCE, "16", "Healthy"), (OTHER, "17", "Healthy")]


def test_a_node_is_offered_fewer_times(make: Make) -> None:
    bench = make(NODE)
    bench.declare({"resource": "devices.kubevirt.io/kvm", "node": "/dev/kvm", "count": 1})
    assert bench.service is not None
    bench.service.reload()
    bench.service.refresh()
    (unit,) = json.loads(bench.options.state.read_text(encoding="utf-8"))["units"]
    assert (unit["health"], unit["count"]) == ("Healthy", 1)


def test_a_usb_device_moves_to_another_resource(make: Make) -> None:
    bench = make(USB)
    stick = {"vendor": "46f4", "product": "0001"}
    first, second = ({"resource": name, "select": {"usb": {**stick, "port": port}}} for name, port in ((STICK, "1-2"), (OTHER, "1-1")))
    assert sorted(declared(bench, first, second)) == [(OTHER, "1-1", "Healthy"), (STICK, "1-2", "Healthy")]


@pytest.mark.parametrize("position", [0, 1])
def test_a_change_leaves_the_gone_units_of_other_resources(make: Make, position: int) -> None:
    bench = make(PCI, USB)
    bench.host.unplug("1-1")
    bench.host.bind(bench.host.folder_of("0000:01:00.0"), "nvidia")
    lost = [(RESOURCE, "16", "Unhealthy"), (RESOURCE, "17", "Healthy"), (STICK, "1-1", "Unhealthy"), (STICK, "1-2", "Healthy")]
    assert sorted(look(bench)) == lost
    entries = [GPU, {"resource": STICK, **bench.stands[USB].entry}]
    entries.insert(position, {"resource": OTHER, "select": {"id": "1234:5678"}})
    assert sorted(declared(bench, *entries)) == lost
    # of a changed entry only what is found
    entries[1 - position if position == 0 else 0] = {**GPU, "functions": "all"}
    assert sorted(declared(bench, *entries)) == lost[1:]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"devices": "' + "x" * 10, '{"devices": ' + "[" * 500 + "]" * 500 + "}", "\udcff"])
def test_any_wrong_file_is_a_fault_with_its_path(make: Make, caplog: pytest.LogCaptureFixture, text: str) -> None:
    bench = make(PCI)
    before = look(bench)
    config = bench.host.base / "etc/devices.json"
    config.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(Refused, match=r"devices"):
        load_declaration(str(config))
    assert bench.service is not None
    bench.service.reload()
    assert "the former declaration stays" in caplog.text
    assert look(bench) == before


@pytest.mark.parametrize("error", [ValueError("invalid literal"), RecursionError("too deep"), KeyError("x")])
def test_an_error_of_the_parser_ends_nothing(make: Make, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    bench = make(PCI)
    broken: list[Exception] = []

    def load(path: str) -> Declaration:
        if broken:
            raise broken[0]
        return load_declaration(path)

    service = bench.service = Service(bench.host.root, bench.options, load)
    service.refresh()
    broken.append(error)
    service.reload()
    assert f"{type(error).__name__}; the former declaration stays" in caplog.text
    assert len(look(bench)) == 2


def test_a_restart_with_a_wrong_file_serves_what_was_declared_before(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    bench = make(PCI)
    before = look(bench)
    assert bench.service is not None
    bench.service.stop()
    bench.host.write("/etc/devices.json", '{"devices": [')
    bench.service = Service(bench.host.root, bench.options)
    assert "SERVING WHAT WAS DECLARED BEFORE" in caplog.text
    assert look(bench) == before
    # /run is lost at a reboot, and nothing can be guessed then
    bench.options.last_good.unlink()
    with pytest.raises(Refused, match="not JSON"):
        Service(bench.host.root, bench.options)


def test_a_restart_without_a_file_serves_nothing(make: Make) -> None:
    bench = make(PCI)
    (bench.host.base / "etc/devices.json").unlink()
    with pytest.raises(Absent):
        Service(bench.host.root, bench.options)


def test_a_copy_that_cannot_be_written_ends_nothing(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    bench = make(PCI)
    bench.options.last_good.unlink()
    bench.options.last_good.mkdir()
    assert len(declared(bench, GPU)) == 2
    assert "without this copy" in caplog.text

"""Every call of the device plugin's server, made and decoded by the module that the kubelet is built with."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.process import GoKubelet, PluginProcess

RESOURCE = "example.com/gpu"
NAME = "EXAMPLE_COM_GPU"
SOCKET = "vfio-passthrough-example.com_gpu.sock"
OPTIONS = {"pre_start_required": False, "get_preferred_allocation_available": True}
# bus, group, NUMA node
GPU, NIC = "10de:2684", "8086:1521"
CARDS = (("01", "16", "0"), ("02", "17", "1"), ("03", "18", "1"), ("04", "19", "-1"))


@dataclass(frozen=True)
class Bench:
    host: FakeHost
    folder: Path
    kubelet: GoKubelet
    plugin: PluginProcess


def declare(host: FakeHost, **ids: str) -> None:
    """Declare example.com/NAME for each id of a function."""
    entries = [{"resource": f"example.com/{name}", "select": {"id": one}, "functions": "all"} for name, one in ids.items()]
    host.write("/etc/devices.json", json.dumps({"devices": entries}))


@pytest.fixture(name="bench")
def _bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="vfp-") as name:
        host = FakeHost(Path(name))
        for bus, group, numa in CARDS:
            host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group, files={"numa_node": f"{numa}\n"})
            host.function(f"0000:{bus}:00.1", "10de:22ba", "040300", driver="vfio-pci", group=group)
            host.node(group)
        host.node("vfio")
        declare(host, gpu=GPU)
        folder = Path(name) / "plugins"
        folder.mkdir()
        with GoKubelet(folder) as kubelet, PluginProcess(host, folder) as plugin:
            yield Bench(host, folder, kubelet, plugin)
            assert plugin.stop() in (0, -signal.SIGKILL), plugin.log.read_text()
        assert kubelet.stop() == 0


def health(devices: list[dict[str, Any]]) -> dict[str, str]:
    return {one["ID"]: one["health"] for one in devices}


ALL = {group: "Healthy" for dummy, group, unused in CARDS}


def answer(bench: Bench, *cards: tuple[str, str]) -> dict[str, Any]:
    """Return the ContainerAllocateResponse for cards by bus and group."""
    values = [(f"0000:{bus}:00.0", f"0000:{bus}:00.1") for bus, dummy in cards]
    folders = [f"{bench.host.base}/g/{NAME}/{group}" for dummy, group in cards]
    nodes = ["/dev/vfio/vfio", *(f"/dev/vfio/{group}" for dummy, group in cards)]
    return {
        "envs": {
            f"PCI_RESOURCE_{NAME}": ",".join(gpu for gpu, dummy in values),
            f"HOSTDEV_COMPANIONS_{NAME}": ",".join(f"{gpu}={audio}" for gpu, audio in values),
        },
        "mounts": [{"container_path": folder, "host_path": folder, "read_only": True} for folder in folders],
        "devices": [{"container_path": node, "host_path": node, "permissions": "mrw"} for node in nodes],
        "annotations": {},
        "cdi_devices": [],
    }


def allocate(bench: Bench, *containers: list[str]) -> dict[str, Any]:
    return bench.kubelet.call(RESOURCE, "Allocate", {"container_requests": [{"devices_ids": ids} for ids in containers]})


def prefer(bench: Bench, available: list[str], included: list[str], size: int) -> list[str]:
    request = {"available_deviceIDs": available, "must_include_deviceIDs": included, "allocation_size": size}
    told = bench.kubelet.call(RESOURCE, "GetPreferredAllocation", {"container_requests": [request]})
    (one,) = told["response"]["container_responses"]
    assert set(one) == {"deviceIDs"}
    return list(one["deviceIDs"])


def test_registration_and_first_list(bench: Bench) -> None:
    told = bench.kubelet.wait("registration", lambda event: event["event"] == "registered")
    assert told["response"] == {"version": "v1beta1", "endpoint": SOCKET, "resource_name": RESOURCE, "options": OPTIONS}
    assert bench.kubelet.wait("options", lambda event: event["event"] == "options")["response"] == OPTIONS
    devices = bench.kubelet.listed(RESOURCE, bool)["response"]["devices"]
    # an int64 is a text in JSON
    topology = {group: None if numa == "-1" else {"nodes": [{"ID": numa}]} for dummy, group, numa in CARDS}
    assert devices == [{"ID": group, "health": "Healthy", "topology": topology[group]} for group in sorted(topology)]


def test_calls_with_one_answer(bench: Bench) -> None:
    bench.kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    assert bench.kubelet.call(RESOURCE, "GetDevicePluginOptions") == {"response": OPTIONS}
    assert bench.kubelet.call(RESOURCE, "PreStartContainer", {"devices_ids": ["16"]}) == {"response": {}}
    assert prefer(bench, sorted(ALL), [], 2) == ["17", "18"]
    assert prefer(bench, sorted(ALL), ["16"], 1) == ["16"]
    assert prefer(bench, ["16", "18"], ["17"], 2) == ["17", "18"]
    assert prefer(bench, ["16"], [], 3) == ["16"]


def test_containers_get_answers_of_their_own(bench: Bench) -> None:
    bench.kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    told = allocate(bench, ["17", "16"], ["18"])
    wanted = [answer(bench, ("02", "17"), ("01", "16")), answer(bench, ("03", "18"))]
    assert told == {"response": {"container_responses": wanted}}


def test_refusals_say_which_and_why(bench: Bench) -> None:
    bench.kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    unknown = allocate(bench, ["99"])
    assert unknown["code"] == "FailedPrecondition"
    assert f"{RESOURCE} 99" in unknown["message"]
    (bench.host.base / "dev/vfio/17").unlink()
    lost = allocate(bench, ["16"], ["17"])
    assert lost["code"] == "FailedPrecondition"
    assert f"{RESOURCE} 17" in lost["message"]
    assert "/dev/vfio/17 does not exist" in lost["message"]


def test_a_node_goes_and_returns(bench: Bench) -> None:
    kubelet = bench.kubelet
    kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    (bench.host.base / "dev/vfio/17").unlink()
    kubelet.listed(RESOURCE, lambda devices: health(devices) == {**ALL, "17": "Unhealthy"})
    seen = len(kubelet.events)
    bench.host.node("17")
    kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL, seen)


def test_resources_come_and_go_with_the_declaration(bench: Bench) -> None:
    kubelet = bench.kubelet
    kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    bench.host.function("0000:05:00.0", NIC, "020000", driver="vfio-pci", group="20")
    bench.host.node("20")
    declare(bench.host, gpu=GPU, nic=NIC)
    kubelet.listed("example.com/nic", lambda devices: health(devices) == {"20": "Healthy"})
    seen = len(kubelet.events)
    declare(bench.host, nic=NIC)
    kubelet.listed(RESOURCE, lambda devices: devices == [], seen)
    kubelet.wait("end of its stream", lambda event: event["event"] == "ended" and event["resource"] == RESOURCE, seen)
    assert not any(event["event"] == "ended" and event["resource"] == "example.com/nic" for event in kubelet.events)


def test_a_killed_plugin_registers_anew(bench: Bench) -> None:
    kubelet = bench.kubelet
    kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL)
    seen = len(kubelet.events)
    bench.plugin.process.kill()
    ended = kubelet.wait("end of the stream", lambda event: event["event"] == "ended", seen)
    assert ended["code"] == "Unavailable"
    with PluginProcess(bench.host, bench.folder):
        kubelet.listed(RESOURCE, lambda devices: health(devices) == ALL, seen)
        assert allocate(bench, ["16"]) == {"response": {"container_responses": [answer(bench, ("01", "16"))]}}

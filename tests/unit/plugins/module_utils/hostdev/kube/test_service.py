"""The service against a stand-in kubelet: registration, health, restarts, the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import SOCKET
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import load_declaration
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import A_LOST, HEALTHY, RESOURCE, PluginBench
from ansible_collections.vfio.passthrough.tests.fakes.podresources import answer, entry, store


@pytest.fixture(name="bench")
def _bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBench]:
    bench = PluginBench(tmp_path_factory.mktemp("b"))
    yield bench
    bench.stop()


@pytest.fixture(name="running")
def _running(bench: PluginBench) -> Iterator[PluginBench]:
    bench.kubelet.start()
    bench.start()
    until(lambda: bench.kubelet.last() == HEALTHY, "the first list")
    yield bench
    bench.stop()
    bench.kubelet.stop()


def test_it_registers_as_the_api_asks(running: PluginBench) -> None:
    request = running.kubelet.registrations[0]
    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", "vfio-passthrough-example.com_gpu.sock", RESOURCE)
    assert request.options.get_preferred_allocation_available
    assert not request.options.pre_start_required
    assert running.sockets() == ["vfio-passthrough-example.com_gpu.sock"]
    assert len(running.kubelet.registrations) == 1


def test_allocate_answers_with_the_units_things(running: PluginBench) -> None:
    (answer,) = running.kubelet.allocate(["17"])
    assert dict(answer.envs) == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:02:00.0"}
    assert [one.host_path for one in answer.devices] == ["/dev/vfio/vfio", "/dev/vfio/17"]
    assert Path(answer.mounts[0].host_path, "grant.sock").is_socket()


def test_allocate_looks_at_the_machine_and_says_why_not(running: PluginBench) -> None:
    folder = running.host.function("0000:01:00.1", "10de:22ba", "040300", driver="snd_hda_intel", group="16")
    assert folder.is_dir()
    with pytest.raises(grpc.RpcError) as caught:
        running.kubelet.allocate(["16"])
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "0000:01:00.1 snd_hda_intel" in caught.value.details()
    with pytest.raises(grpc.RpcError, match="nope"):
        running.kubelet.allocate(["nope"])


def test_a_node_that_goes_and_returns_changes_its_unit_only(running: PluginBench) -> None:
    running.settle()
    running.node("16").unlink()
    until(lambda: running.kubelet.last() == A_LOST, "the unit unhealthy")
    running.settle()
    running.host.node("16")
    until(lambda: running.kubelet.last() == HEALTHY, "the unit healthy again")
    assert running.kubelet.lists == [HEALTHY, A_LOST, HEALTHY]
    assert len(running.kubelet.registrations) == 1


def test_a_node_absent_at_start_spoils_nothing_else(bench: PluginBench) -> None:
    bench.node("16").unlink()
    bench.kubelet.start()
    bench.start()
    until(lambda: bench.kubelet.last() == A_LOST, "the first list")
    bench.stop()
    bench.kubelet.stop()


def test_it_registers_again_after_a_restart_of_the_kubelet(running: PluginBench) -> None:
    for times in (2, 3):
        running.kubelet.stop()
        running.settle()
        running.kubelet.start()
        until(lambda times=times: len(running.kubelet.registrations) == times, "another registration")  # type: ignore[misc]
        until(lambda: running.kubelet.last() == HEALTHY and not running.kubelet.ended.is_set(), "a list")
        assert running.kubelet.allocate(["16"])


def test_it_comes_back_when_its_socket_is_removed(running: PluginBench) -> None:
    running.settle()
    (running.folder / running.sockets()[0]).unlink()
    until(lambda: len(running.kubelet.registrations) == 2, "another registration")
    assert running.kubelet.allocate(["16"])


def test_it_waits_for_the_kubelet_and_says_so_once(bench: PluginBench, caplog: pytest.LogCaptureFixture) -> None:
    bench.start()
    until(lambda: "waiting for the kubelet" in caplog.text, "the line")
    (bench.folder / "other").touch()
    bench.settle()
    bench.kubelet.start()
    until(lambda: bench.kubelet.last() == HEALTHY, "the first list")
    assert caplog.text.count("waiting for the kubelet") == 1
    bench.stop()
    bench.kubelet.stop()


def test_it_tries_again_when_the_kubelet_refuses(bench: PluginBench, caplog: pytest.LogCaptureFixture) -> None:
    bench.kubelet.refusal = "not today"
    bench.kubelet.start()
    bench.start()
    until(lambda: "not today" in caplog.text, "the refusal in the log")
    bench.kubelet.refusal = ""
    until(lambda: bench.kubelet.last() == HEALTHY, "the first list")
    bench.stop()
    bench.kubelet.stop()


def test_a_resource_that_is_no_longer_declared_ends_with_an_empty_list(running: PluginBench) -> None:
    running.declare({"resource": "example.com/other", "select": {"id": "10de:2684"}})
    assert running.service is not None
    running.service.reload()
    until(lambda: {} in running.kubelet.lists, "an empty list")
    until(lambda: running.sockets() == ["vfio-passthrough-example.com_other.sock"], "the sockets")
    until(lambda: running.kubelet.last() == HEALTHY, "the other resource's list")


def test_a_wrong_configuration_leaves_the_former_one(running: PluginBench, caplog: pytest.LogCaptureFixture) -> None:
    running.host.write("/etc/devices.json", "{")
    assert running.service is not None
    running.service.reload()
    assert "not JSON" in caplog.text
    assert running.kubelet.allocate(["16"])


def test_a_changed_configuration_is_taken_up_without_being_told(running: PluginBench) -> None:
    running.settle()
    running.declare({"resource": "example.com/other", "select": {"id": "10de:2684"}})
    until(lambda: running.sockets() == ["vfio-passthrough-example.com_other.sock"], "the other resource's socket")


def test_another_release_ends_the_service(running: PluginBench) -> None:
    link = Path(running.options.release)
    link.parent.mkdir(parents=True)
    running.settle()
    link.symlink_to("another")
    until(lambda: not running.alive, "the end of the service")


def test_a_service_that_waits_gives_signs_of_life(bench: PluginBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    bench.start()
    until(bench.options.state.exists, "the first look")
    for number in range(3):
        bench.options.lock.touch()
        os.utime(bench.options.lock, (number, number))
        until(lambda: bench.options.lock.stat().st_mtime > 3, "a new time of the lock")


def test_others_read_what_is_served(running: PluginBench) -> None:
    def registered() -> bool:
        file = running.options.state
        return file.exists() and bool(json.loads(file.read_text(encoding="utf-8"))["resources"][0]["registered"])

    until(registered, "registered")
    state = json.loads(running.options.state.read_text(encoding="utf-8"))
    assert [(one["id"], one["health"], one["name"]) for one in state["units"]] == [
        ("16", "Healthy", "0000:01:00.0"),
        ("17", "Healthy", "0000:02:00.0"),
    ]


def test_b30_a_group_that_is_another_unit_since_the_reboot_is_told(bench: PluginBench, caplog: pytest.LogCaptureFixture) -> None:
    store(bench.folder, entry(RESOURCE, ["18"], answer({"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:02:00.0"})))
    bench.start()
    until(bench.options.state.exists, "the state file")
    (told,) = json.loads(bench.options.state.read_text(encoding="utf-8"))["renumbered"]
    assert (told["ids"], told["values"], told["pod_uid"]) == (["18"], ["0000:02:00.0"], "uid-a")
    assert "0000:02:00.0 is unit 17 now" in told["detail"]
    assert caplog.text.count("renumbered: unit 18 was 0000:02:00.0 when the pod got it") == 1


def test_the_end_removes_sockets_and_keeps_grant_folders(running: PluginBench) -> None:
    running.stop()
    assert running.sockets() == []
    assert not running.options.state.exists()
    folder = Path(running.options.grants, "EXAMPLE_COM_GPU", "16")
    assert folder.is_dir()
    assert not (folder / SOCKET).exists()
    assert running.kubelet.ended.wait(10)


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no such file"):
        load_declaration(str(tmp_path / "none.json"))
    (tmp_path / "a.json").write_text("[]", encoding="utf-8")
    with pytest.raises(Refused, match="keys devices and permitted_host_devices"):
        load_declaration(str(tmp_path / "a.json"))

"""One resource's server, called as a kubelet does, and as no kubelet should."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import PCI
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import inline
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import Server, Shelf
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN, device_plugin
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until

RESOURCE = "example.com/gpu"
MESSAGES = device_plugin()
ENCODE = MESSAGES.encoder()


def units(*ids: str, trouble: str = "") -> list[Offer]:
    return [Offer(PCI, RESOURCE, one, f"0000:{one}:00.0", trouble=trouble) for one in ids]


def told(ids: Sequence[str]) -> bytes:
    """Return an answer that says which units were asked for, and in which thread."""
    envs = {"IDS": ",".join(ids), "THREAD": threading.current_thread().name}
    return MESSAGES.encode("AllocateResponse", container_responses=[{"envs": envs}])


class Stand:
    """A server that may be called. `answer` is what it answers Allocate with."""

    def __init__(self, folder: Path, *, prefer: bool = True) -> None:
        self.shelf = Shelf()
        self.shelf.put(units("16", "17"))
        self.answer: Callable[[list[list[str]]], Sequence[bytes]] = lambda requests: [told(ids) for ids in requests]
        self.server = Server(RESOURCE, folder, self.shelf, self._answered, lambda: None, prefer=prefer)
        self.server.start()
        self._channel = grpc.insecure_channel(f"unix:{self.server.path}")

    def _answered(self, requests: list[list[str]]) -> Sequence[bytes]:
        # what answers may be another thing by now
        return self.answer(requests)

    def stop(self) -> None:
        self.server.stop()
        self._channel.close()

    def method(self, name: str, make: str = "unary_unary", encode: Callable[[Any], bytes] = ENCODE) -> Any:
        """Return a method as something to call."""
        response = DEVICE_PLUGIN.methods["DevicePlugin"][name][1].removeprefix("stream ")
        return getattr(self._channel, make)(DEVICE_PLUGIN.path("DevicePlugin", name), encode, MESSAGES.decoder(response))

    def allocate(self, *containers: Sequence[str]) -> list[dict[str, str]]:
        request = MESSAGES["AllocateRequest"](container_requests=[{"devices_ids": ids} for ids in containers])
        return [dict(one.envs) for one in self.method("Allocate")(request, timeout=10).container_responses]

    def watch(self) -> Any:
        return self.method("ListAndWatch", "unary_stream")(MESSAGES["Empty"]())


@pytest.fixture(name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a name that is short enough for sockets."""
    return tmp_path_factory.mktemp("p")


@pytest.fixture(name="stand")
def _stand(folder: Path) -> Iterator[Stand]:
    made = Stand(folder)
    yield made
    made.stop()


def healths(message: Any) -> dict[str, str]:
    return {one.ID: one.health for one in message.devices}


def test_a_stream_has_the_list_at_once_then_each_that_differs_and_an_empty_one_last(stand: Stand) -> None:
    stream = stand.watch()
    lists = [healths(next(stream))]
    stand.shelf.put(units("17", "16"))
    stand.shelf.put(units("16", trouble="lost"))
    lists.append(healths(next(stream)))
    stand.shelf.put([])
    threading.Thread(target=stand.server.stop).start()
    lists += map(healths, stream)
    assert lists == [{"16": "Healthy", "17": "Healthy"}, {"16": "Unhealthy"}, {}]


def test_an_empty_shelf_is_a_list_too(folder: Path) -> None:
    stand = Stand(folder)
    stand.shelf.put([])
    assert healths(next(stand.watch())) == {}
    stand.stop()


def test_each_container_has_its_own_answer(stand: Stand) -> None:
    assert [one["IDS"] for one in stand.allocate(["17", "16"], [], ["16"])] == ["17,16", "", "16"]


def test_allocate_is_answered_where_it_is_received(stand: Stand) -> None:
    (answer,) = stand.allocate(["16"])
    # the threads of the pool are named after the socket
    assert stand.server.endpoint not in answer["THREAD"]


def test_a_grpc_of_other_make_answers_from_its_pool(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_receive_message", None)
    stand = Stand(folder)
    (answer,) = stand.allocate(["16"])
    assert answer["IDS"] == "16"
    assert "ThreadPoolExecutor" in answer["THREAD"]
    stand.stop()


def test_a_fault_is_a_failed_precondition_with_a_short_text(stand: Stand) -> None:
    def refuse(_requests: list[list[str]]) -> Sequence[bytes]:
        raise Refused(what="hand out a device", subject="16", cause="gone " * 200, hint="look")

    stand.answer = refuse
    with pytest.raises(grpc.RpcError) as caught:
        stand.allocate(["16"])
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details().startswith("cannot hand out a device: 16: gone")
    assert len(caught.value.details()) <= 300


def test_a_mistake_of_ours_ends_one_call_only(stand: Stand) -> None:
    stand.answer = lambda requests: [told(requests[7])]
    with pytest.raises(grpc.RpcError) as caught:
        stand.allocate(["16"])
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    stand.answer = lambda requests: [told(ids) for ids in requests]
    assert stand.allocate(["16"])


@pytest.mark.parametrize("method", ["Allocate", "GetPreferredAllocation"])
def test_what_is_no_request_ends_one_call_only(stand: Stand, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stand.method(method, encode=bytes)(b"\xff\xff\xff", timeout=10)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    with pytest.raises(grpc.RpcError) as caught:
        stand.method(method, "stream_unary")(iter(()), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert stand.allocate(["16"])


def test_a_client_that_goes_leaves_nothing_behind(stand: Stand) -> None:
    before = threading.active_count()
    streams = [stand.watch() for dummy in range(3)]
    assert [healths(next(stream)) for stream in streams] == [{"16": "Healthy", "17": "Healthy"}] * 3
    assert stand.server.watched
    for stream in streams:
        stream.cancel()
    until(lambda: not stand.server.watched, "the end of the streams")
    until(lambda: threading.active_count() <= before + 3, "no threads but the pool's")


def test_a_client_that_goes_during_allocate_ends_one_call_only(stand: Stand) -> None:
    came, go = threading.Event(), threading.Event()

    def slow(requests: list[list[str]]) -> Sequence[bytes]:
        came.set()
        go.wait(10)
        return [told(ids) for ids in requests]

    stand.answer = slow
    call = stand.method("Allocate").future(MESSAGES["AllocateRequest"](container_requests=[{"devices_ids": ["16"]}]))
    assert came.wait(10)
    call.cancel()
    go.set()
    assert stand.allocate(["16"])


def test_what_does_not_matter_is_not_preferred(folder: Path) -> None:
    stand = Stand(folder, prefer=False)
    options = stand.method("GetDevicePluginOptions")(MESSAGES["Empty"](), timeout=10)
    assert not options.get_preferred_allocation_available
    with pytest.raises(grpc.RpcError) as caught:
        stand.method("GetPreferredAllocation")(MESSAGES["PreferredAllocationRequest"](), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    stand.stop()


def test_a_hundred_servers_leave_no_thread_and_no_file_open(folder: Path) -> None:
    def used() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    def once() -> None:
        stand = Stand(folder)
        stream = stand.watch()
        next(stream)
        assert stand.allocate(["16"])
        stand.server.stop()
        assert list(stream) == []
        stand.stop()

    once()
    threads, files = used()
    for dummy in range(100):
        once()
    # gRPC's own threads come and go
    until(lambda: used()[0] <= threads + 2, f"no more than {threads} threads")
    until(lambda: used()[1] <= files + 10, f"no more than {files} files")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: folder.rmdir(), "No such file or directory"),
        (lambda folder: (folder / ".vfio-passthrough-example.com_gpu.sock").mkdir(), "Is a directory"),
        (lambda folder: (folder / "vfio-passthrough-example.com_gpu.sock").mkdir(), "Is a directory"),
    ],
)
def test_a_folder_that_takes_no_socket_is_told_in_the_systems_words(folder: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(folder)
    before = threading.active_count()
    with pytest.raises((Fault, OSError), match=words):
        Stand(folder)
    until(lambda: threading.active_count() <= before, "no thread of the server")

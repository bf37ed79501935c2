"""The hand-over as the kubelet and a container meet it: at the first start, at later ones, and after a restart of the service."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import IOMMUFD, NODE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.handover import IN_CONTAINER
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.checkpoint import FILE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import device_plugin
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import PluginBench


@pytest.fixture(name="bench")
def _bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBench]:
    bench = PluginBench(tmp_path_factory.mktemp("b"), (IOMMUFD,))
    yield bench
    bench.stop()
    bench.kubelet.stop()


def start(bench: PluginBench) -> None:
    bench.kubelet.start()
    bench.start()
    until(lambda: bench.kubelet.lists, "the first list")


def path_of(answer: Any) -> Path:
    """Return where the socket of an answer lies on the host."""
    return next(Path(mount.host_path) for mount in answer.mounts if mount.container_path == IN_CONTAINER)


def begin(bench: PluginBench, *ids: str) -> None:
    """Do what the kubelet does before each start of a container that has these units."""
    bench.kubelet.call("PreStartContainer", device_plugin()["PreStartContainerRequest"](devices_ids=ids))


def take(path: Path) -> int:
    """Do what the container does, and return how many descriptors it got."""
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(30)
        made.connect(str(path))
        said, handles, _flags, _address = socket.recv_fds(made, 1, 2)
        made.send(b"\0")
    for handle in handles:
        os.close(handle)
    return len(handles) if said == b"\0" else 0


def test_only_this_kind_is_told_of_each_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    bench = PluginBench(tmp_path_factory.mktemp("b"), (IOMMUFD, NODE))
    bench.kubelet.start()
    bench.start()
    until(lambda: len(bench.kubelet.lists_of) == 2, "both lists")
    told = {one.resource_name: one.options.pre_start_required for one in bench.kubelet.registrations}
    bench.stop()
    bench.kubelet.stop()
    assert told == {bench.resources[IOMMUFD]: True, bench.resources[NODE]: False}


def test_every_start_of_a_container_gets_a_descriptor_at_the_same_path(bench: PluginBench) -> None:
    start(bench)
    (answer,) = bench.kubelet.allocate(["iommufd4", "iommufd2"])
    path = path_of(answer)
    for _start in range(3):
        begin(bench, "iommufd2", "iommufd4")
        assert take(path) == 1
        assert not path.exists()


def test_the_grant_of_the_node_comes_with_it(bench: PluginBench) -> None:
    start(bench)
    (answer,) = bench.kubelet.allocate(["iommufd0"])
    grants = [mount for mount in answer.mounts if mount.container_path != IN_CONTAINER]
    assert [(mount.read_only, Path(mount.host_path, "grant.sock").is_socket()) for mount in grants] == [(True, True)]


def test_a_start_without_the_device_is_refused_by_its_name(bench: PluginBench) -> None:
    start(bench)
    (answer,) = bench.kubelet.allocate(["iommufd0"])
    assert take(path_of(answer)) == 1
    bench.iommu_works = False
    with pytest.raises(grpc.RpcError) as caught:
        begin(bench, "iommufd0")
    assert "/dev/iommu" in caught.value.details()
    assert not path_of(answer).exists()


def test_a_service_that_starts_makes_the_sockets_of_stored_answers_again(bench: PluginBench) -> None:
    start(bench)
    (answer,) = bench.kubelet.allocate(["iommufd1"])
    path = path_of(answer)
    bench.stop()
    assert not path.exists()
    stored = {"ResourceName": bench.resources[IOMMUFD], "AllocResp": base64.b64encode(answer.SerializeToString()).decode()}
    (bench.folder / FILE).write_text(json.dumps({"Data": {"PodDeviceEntries": [stored]}}), encoding="utf-8")
    bench.start()
    until(path.is_socket, "the socket")
    assert take(path) == 1


def test_a_request_for_nothing_takes_nothing(bench: PluginBench) -> None:
    start(bench)
    (answer,) = bench.kubelet.allocate([])
    assert (list(answer.mounts), list(answer.devices), dict(answer.envs)) == ([], [], {})

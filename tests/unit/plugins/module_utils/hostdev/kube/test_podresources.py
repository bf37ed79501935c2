"""The kubelet's podresources API: what is read, and what is said when it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.podresources import POD_RESOURCES, read_kubelet
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import Messages
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root

MESSAGES = Messages(POD_RESOURCES)
ALLOCATABLE = [("a.com/x", ["1", "2"]), ("a.com/x", ["3"]), ("b.com/y", [])]


class Lister:
    """Answers List and GetAllocatableResources on a socket."""

    def __init__(self, socket: Path) -> None:
        self.refuses = False
        methods = POD_RESOURCES.methods["PodResourcesLister"]
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._answer(name, response), MESSAGES.decoder(request), MESSAGES.encoder())
            for name, (request, response) in methods.items()
        }
        self.server = grpc.server(ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def _answer(self, name: str, response: str) -> Any:
        def call(unused_request: Any, context: Any) -> Any:
            if self.refuses:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")
            made = MESSAGES[response]()
            if name == "List":
                pod = made.pod_resources.add(name="vm-a", namespace="default")
                pod.containers.add(name="compute").devices.add(resource_name="a.com/x", device_ids=["2"])
            else:
                for resource, ids in ALLOCATABLE:
                    made.devices.add(resource_name=resource, device_ids=ids)
            return made

        return call


@pytest.fixture
def lister(tmp_path: Path) -> Iterator[Lister]:
    made = Lister(tmp_path / "kubelet.sock")
    yield made
    made.server.stop(None).wait()


def test_ids_of_several_entries_are_joined_and_holders_are_pods(lister: Lister, tmp_path: Path) -> None:
    told = read_kubelet(Root(base=tmp_path), "/kubelet.sock")
    assert told.allocatable == {"a.com/x": {"1", "2", "3"}, "b.com/y": set()}
    assert told.holders == {("a.com/x", "2"): "default/vm-a"}


def test_a_refusal_is_a_fault_with_the_kubelets_words(lister: Lister, tmp_path: Path) -> None:
    lister.refuses = True
    with pytest.raises(Fault, match="RESOURCE_EXHAUSTED: too many calls"):
        read_kubelet(Root(base=tmp_path), "/kubelet.sock")


def test_no_socket_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no such socket"):
        read_kubelet(Root(base=tmp_path), "/kubelet.sock")

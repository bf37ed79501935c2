"""The ledger, read from a kubelet's podresources socket and its store: what is read, and what is said when it cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.holding import Holding
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.ledger import read_ledger
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.podresources import PLUGINS, FakePodResources, answer, entry, store

GPU = "a.com/x"


@pytest.fixture(name="tmp_path")
def _short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # a socket's path has 107 bytes, and a worker of several tests has a folder named after the test
    return tmp_path_factory.mktemp("l")


@pytest.fixture(name="kubelet")
def _kubelet(tmp_path: Path) -> Iterator[FakePodResources]:
    made = FakePodResources(
        tmp_path, allocatable=[(GPU, ["1", "2"]), (GPU, ["3"]), ("b.com/y", [])], pods=[("default/vm-a", "compute", GPU, ["2"])]
    )
    made.start()
    yield made
    made.stop()


@pytest.mark.usefixtures("kubelet")
def test_ids_of_several_entries_are_joined_and_holders_are_pods(tmp_path: Path) -> None:
    told = read_ledger(Root(base=tmp_path))
    assert told.allocatable == {GPU: {"1", "2", "3"}, "b.com/y": set()}
    assert told.holdings == (Holding(GPU, "2", "default", "vm-a", "compute"),)
    assert told.holders(GPU, "2")[0].owner == "default/vm-a"
    assert (told.holders(GPU, "1"), told.holders("b.com/y"), len(told.holders(GPU))) == ((), (), 1)


def test_a_pod_that_is_gone_is_gone_from_the_ledger(kubelet: FakePodResources, tmp_path: Path) -> None:
    store(tmp_path / PLUGINS.lstrip("/"), entry(GPU, ["2"], answer({"PCI_RESOURCE_A_COM_X": "0000:01:00.0"})))
    kubelet.pods.clear()
    assert read_ledger(Root(base=tmp_path)).holdings == ()


@pytest.mark.usefixtures("kubelet")
def test_the_kubelets_store_tells_what_a_holder_was_given(tmp_path: Path) -> None:
    given = answer({"PCI_RESOURCE_A_COM_X": "0000:01:00.0", "OTHER": "x"}, nodes=["/dev/vfio/vfio", "/dev/vfio/2"])
    others = [entry(GPU, ["2"], "AAAA", container="sidecar"), entry("b.com/y", ["2"], answer({"B": "b"}, nodes=["/dev/b"]))]
    store(tmp_path / PLUGINS.lstrip("/"), *others, entry(GPU, ["2"], given))
    (held,) = read_ledger(Root(base=tmp_path)).holdings
    assert (held.values, held.nodes) == (("0000:01:00.0",), ("/dev/vfio/vfio", "/dev/vfio/2"))


@pytest.mark.usefixtures("kubelet")
def test_a_holder_is_one_also_where_the_store_cannot_be_read(tmp_path: Path) -> None:
    store(tmp_path / PLUGINS.lstrip("/")).write_text("{half", encoding="utf-8")
    assert [(held.owner, held.nodes) for held in read_ledger(Root(base=tmp_path)).holdings] == [("default/vm-a", ())]


def test_a_refusal_is_a_fault_with_the_kubelets_words(kubelet: FakePodResources, tmp_path: Path) -> None:
    kubelet.refuses = True
    with pytest.raises(Fault, match="RESOURCE_EXHAUSTED: too many calls"):
        read_ledger(Root(base=tmp_path))


def test_no_socket_is_absent_and_not_an_empty_ledger(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="/other/pod-resources/kubelet.sock: no such socket"):
        read_ledger(Root(base=tmp_path), "/other")


def test_a_holding_survives_json() -> None:
    held = Holding(GPU, "2", "default", "vm-a", "compute", ("0000:01:00.0",), ("/dev/vfio/2",))
    assert Holding.of(held.as_dict()) == held
    assert Holding.of({"resource": GPU, "id": 7}) == Holding(GPU, "7", "", "", "")

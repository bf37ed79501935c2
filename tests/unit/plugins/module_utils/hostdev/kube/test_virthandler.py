"""What KubeVirt's virt-handler serves on a node, and is left: while it answers, and for a while after it went."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import NODE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import virthandler as module
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.virthandler import VirtHandler
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import PluginBench

KVM, TUN = "devices.kubevirt.io/kvm", "devices.kubevirt.io/tun"
BOTH = (KVM, TUN, "example.com/kvm")
OURS = {"kvm0": "Healthy", "kvm1": "Healthy"}


class Folder:
    """The kubelet's plugin folder, with virt-handler's socket of kvm in it."""

    def __init__(self, base: Path) -> None:
        self.path = base
        self.kubelet = base / "kubelet.sock"
        self.kubelet.touch()
        self.socket = base / "kubevirt-kvm.sock"
        self._server: socket.socket | None = None

    def serve(self) -> None:
        self.end()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.socket))
        self._server.listen()

    def die(self) -> None:
        """End without removing the socket."""
        if self._server is not None:
            self._server.close()

    def end(self) -> None:
        self.die()
        self.socket.unlink(missing_ok=True)

    def start_kubelet(self) -> None:
        """As the kubelet starts: every socket of the folder goes, its own is another one."""
        self.end()
        self.kubelet.rename(self.path / "former")
        self.kubelet.touch()


def watching(folder: Folder) -> VirtHandler:
    return VirtHandler(folder.path, folder.kubelet, folder.path / "run/memory", 300.0)


@pytest.fixture(name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    folder = Folder(tmp_path_factory.mktemp("v"))
    yield folder
    folder.end()


def test_only_what_answers_is_left(folder: Folder) -> None:
    handler = watching(folder)
    assert handler.serves(BOTH, 0.0) == (frozenset(), None)
    folder.serve()
    assert handler.serves(BOTH, 1.0) == (frozenset({KVM}), None)


def test_it_comes_back_before_us_after_a_start_of_the_kubelet(folder: Folder) -> None:
    handler = watching(folder)
    folder.serve()
    handler.serves(BOTH, 0.0)
    folder.start_kubelet()
    assert handler.serves(BOTH, 100.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 106.0) == (frozenset({KVM}), 4.0)
    folder.serve()
    assert handler.serves(BOTH, 107.0) == (frozenset({KVM}), None)
    # and a start while it is waited for begins the wait anew
    folder.start_kubelet()
    handler.serves(BOTH, 200.0)
    (folder.path / "former").unlink()
    folder.start_kubelet()
    assert handler.serves(BOTH, 209.0) == (frozenset({KVM}), 10.0)


def test_without_a_kubelet_nobody_is_waited_for_in_vain(folder: Folder) -> None:
    handler = watching(folder)
    folder.serve()
    handler.serves(BOTH, 0.0)
    folder.end()
    folder.kubelet.unlink()
    assert handler.serves(BOTH, 100.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 200.0) == (frozenset({KVM}), 10.0)


def test_what_it_serves_no_more_becomes_ours(folder: Folder) -> None:
    handler = watching(folder)
    folder.serve()
    handler.serves(BOTH, 0.0)
    folder.end()
    assert handler.serves(BOTH, 1.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 11.0) == (frozenset(), None)
    # for good: the next start of the kubelet is none of its business
    folder.start_kubelet()
    assert handler.serves(BOTH, 12.0) == (frozenset(), None)


def test_a_socket_without_listener_does_not_block_for_ever(folder: Folder) -> None:
    handler = watching(folder)
    folder.serve()
    handler.serves(BOTH, 0.0)
    folder.die()
    # what answered is asked again at the slow check
    assert handler.serves(BOTH, 299.0) == (frozenset({KVM}), None)
    assert handler.serves(BOTH, 300.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 310.0) == (frozenset(), None)
    assert handler.serves(BOTH, 900.0) == (frozenset(), None)
    folder.serve()
    assert handler.serves(BOTH, 901.0) == (frozenset({KVM}), None)


def test_a_socket_of_nobody_at_the_start_is_given_up_too(folder: Folder) -> None:
    folder.serve()
    folder.die()
    handler = watching(folder)
    assert handler.serves(BOTH, 0.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 10.0) == (frozenset(), None)
    folder.end()
    assert handler.serves(BOTH, 11.0) == (frozenset(), None)


def test_what_it_served_outlives_us(folder: Folder) -> None:
    folder.serve()
    watching(folder).serves(BOTH, 0.0)
    folder.start_kubelet()
    handler = watching(folder)
    assert handler.serves(BOTH, 100.0) == (frozenset({KVM}), 10.0)
    assert handler.serves(BOTH, 110.0) == (frozenset(), None)
    assert watching(folder).serves(BOTH, 120.0) == (frozenset(), None)


@pytest.mark.parametrize("text", ["{", "7", "[7, null]"])
def test_a_memory_that_is_none_remembers_nothing(folder: Folder, text: str) -> None:
    (folder.path / "run").mkdir()
    (folder.path / "run/memory").write_text(text, encoding="utf-8")
    assert watching(folder).serves(BOTH, 0.0) == (frozenset(), None)


def test_a_memory_that_cannot_be_written_ends_nothing(folder: Folder) -> None:
    (folder.path / "run").touch()
    folder.serve()
    assert watching(folder).serves(BOTH, 0.0) == (frozenset({KVM}), None)


def test_a_node_that_virt_handler_serves_is_left_to_it(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design decision 15: whoever registers a resource second steals it from the first."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    bench = PluginBench(tmp_path_factory.mktemp("b"), (NODE,))
    bench.kubelet.start()
    bench.start()
    until(lambda: bench.kubelet.last() == OURS, "our units")
    handler = Folder(bench.folder)
    handler.serve()
    until(lambda: bench.kubelet.last() == {}, "an empty list")

    def reasons() -> list[str]:
        return [one["reason"] for one in json.loads(bench.options.state.read_text(encoding="utf-8"))["skipped"]]

    until(lambda: reasons() == ["served-by-kubevirt"], "the reason")
    handler.end()
    until(lambda: bench.kubelet.last() == OURS, "the units again")
    bench.stop()
    bench.kubelet.stop()

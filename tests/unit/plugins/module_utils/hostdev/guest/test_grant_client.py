from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault, Refused, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import Answer, Request, decode_request, encode_answer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.grant_client import GIB, GrantClient, memlock_bytes
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.launch import guest_bytes
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import with_gpus


class Service:
    """A node's service for units below a folder; its answer to every request is given."""

    def __init__(self, base: Path, answer: Callable[[Request], bytes]) -> None:
        self.base, self.answer = base, answer
        self.asked: list[tuple[str, Request]] = []

    def unit(self, name: str, *, bound: bool = True) -> Path:
        folder = self.base / "grant" / name
        folder.mkdir(parents=True)
        if bound:
            self.bind(folder)
        return folder

    def bind(self, folder: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        # relative to the folder: a test's folder may pass the 107 bytes of a socket's path
        here = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/grant.sock")
        os.close(here)
        listener.listen()
        threading.Thread(target=self._serve, args=(listener, folder.name), daemon=True).start()

    def _serve(self, listener: socket.socket, name: str) -> None:
        while True:
            peer, _address = listener.accept()
            with peer:
                request = decode_request(peer.recv(4096))
                self.asked.append((name, request))
                peer.sendall(self.answer(request))


def _client(service: Service, limit: int = 0, patience: float = 10.0, said: list[str] | None = None) -> GrantClient:
    say = (lambda _line: None) if said is None else said.append
    return GrantClient(Root(service.base), "/grant", patience, say, lambda: limit)


@pytest.fixture(name="short")
def _short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("g")


def _granting(nodes: tuple[str, ...]) -> Callable[[Request], bytes]:
    return lambda request: encode_answer(Answer(request.memlock_bytes, nodes))


@pytest.mark.parametrize(("devices", "wanted"), [(0, 0), (1, (8 << 30) + GIB), (2, (16 << 30) + GIB), (3, (24 << 30) + GIB)])
def test_memory_is_locked_once_for_each_device_and_a_gibibyte_for_all(devices: int, wanted: int) -> None:
    assert memlock_bytes(8 << 30, devices) == wanted


def test_six_cards_lock_five_times_the_guests_memory_more_than_one() -> None:
    def limit(cards: int) -> int:
        vmi = parse_manifest(with_gpus(*(f"card{number}" for number in range(cards))))
        assert isinstance(vmi, VirtualMachineInstance)
        return memlock_bytes(guest_bytes(vmi), len(vmi.spec.host_devices))

    assert limit(6) - limit(1) == 5 * (256 << 20)


def test_every_unit_is_asked(short: Path) -> None:
    node = short / "dev/vfio/18"
    node.parent.mkdir(parents=True)
    node.touch()
    service = Service(short, _granting(("/dev/vfio/18",)))
    for name in ("NVIDIA_COM_AD102/18", "DEVICES_KUBEVIRT_IO_KVM/kvm"):
        service.unit(name)
    answers = _client(service, limit=100).ask(100)
    assert answers == [Answer(100, ("/dev/vfio/18",))] * 2
    assert service.asked == [("kvm", Request(100)), ("18", Request(100))]


def test_a_refusal_is_the_services_own(short: Path) -> None:
    refusal = Refused(
        what="raise the memory-lock limit", subject="pid 7 to 100", cause="at most 50 bytes", hint="raise the pod's memory limit"
    )
    service = Service(short, lambda _request: encode_answer(refusal))
    service.unit("N/18")
    with pytest.raises(Refused) as caught:
        _client(service).ask(100)
    assert caught.value.as_dict() == refusal.as_dict()


def test_a_service_that_comes_late_is_waited_for_and_that_is_said_once(short: Path) -> None:
    service = Service(short, _granting(()))
    folder = service.unit("N/18", bound=False)
    threading.Timer(0.7, service.bind, (folder,)).start()
    said: list[str] = []
    assert _client(service, limit=100, said=said).ask(100) == [Answer(100, ())]
    assert len(said) == 1
    assert said[0].startswith("waiting for the device plugin to answer at ")


def test_a_full_queue_is_waited_for(short: Path) -> None:
    service = Service(short, _granting(()))
    path = str(service.unit("N/18", bound=False) / "grant.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    crowd = [socket.socket(socket.AF_UNIX) for dummy in range(3)]
    crowd[-1].setblocking(False)
    for one in crowd[:-1]:
        one.connect(path)
    with pytest.raises(BlockingIOError):
        crowd[-1].connect(path)

    def open_up() -> None:
        for dummy in crowd[:-1]:
            listener.accept()[0].close()
        service._serve(listener, "18")

    later = threading.Timer(0.3, open_up)
    later.daemon = True
    later.start()
    assert _client(service, limit=100, patience=0.0).ask(100) == [Answer(100, ())]
    for one in crowd:
        one.close()


def test_a_service_that_never_comes(short: Path) -> None:
    service = Service(short, _granting(()))
    service.unit("N/18", bound=False)
    with pytest.raises(Timeout, match=r"the service does not answer: No such file.*look at the vfio-passthrough device plugin"):
        _client(service, patience=0.0).ask(100)


@pytest.mark.parametrize(
    ("said", "cause"), [(b"", "without an answer"), (b"{}\n", "'nodes' is not a list"), (b"nonsense\n", "not one line of JSON")]
)
def test_an_answer_that_is_none(short: Path, said: bytes, cause: str) -> None:
    service = Service(short, lambda _request: said)
    service.unit("N/18")
    with pytest.raises(Fault, match=cause):
        _client(service, patience=0.0).ask(100)


def test_a_service_that_ends_meanwhile_is_asked_again(short: Path) -> None:
    answers = iter([b"", encode_answer(Answer(100, ()))])
    service = Service(short, lambda _request: next(answers))
    service.unit("N/18")
    assert _client(service, limit=100).ask(100) == [Answer(100, ())]
    assert len(service.asked) == 2


def test_a_limit_that_was_promised_and_is_not_there(short: Path) -> None:
    service = Service(short, _granting(()))
    service.unit("N/18")
    with pytest.raises(Refused, match="the service answered, yet the limit is 99 bytes"):
        _client(service, limit=99).ask(100)


def test_a_node_that_was_promised_and_is_not_there(short: Path) -> None:
    service = Service(short, _granting(("/dev/vfio/18",)))
    service.unit("N/18")
    with pytest.raises(Absent, match="/dev/vfio/18: the service named it"):
        _client(service, limit=100).ask(100)


def test_without_devices_nothing_is_needed(short: Path) -> None:
    assert _client(Service(short, _granting(())), limit=0).ask(0) == []


def test_no_limit_at_all_is_enough(short: Path) -> None:
    assert _client(Service(short, _granting(())), limit=-1).ask(1 << 40) == []

"""Registration with kubelets that refuse, keep silent, or are replaced. Times are given, none is waited for."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import Server, Shelf
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.registration import Registrar
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import FakeKubelet, until

RESOURCE = "example.com/gpu"
VERSION = 'requested API version "v1beta1" is not supported by kubelet. Supported version is "v1beta2"'


class Stand:
    """A registrar with its clock. `woken` counts what would wake the service."""

    def __init__(self, folder: Path, *, prefer: bool = True) -> None:
        self.kubelet = FakeKubelet(folder)
        self.now = 1000.0
        self.woken = threading.Semaphore(0)
        self.shelf = Shelf()
        self.registrar = Registrar(
            RESOURCE,
            self.kubelet.socket,
            lambda: Server(RESOURCE, folder, self.shelf, lambda _requests: [], self.woken.release, prefer=prefer),
        )

    def step(self, after: float = 0.0) -> float | None:
        """Let so many seconds pass and step; return when the next step is due."""
        self.now += after
        return self.registrar.step(self.now)

    def answered(self, after: float = 0.0) -> float | None:
        """Ask and go on until the answer was taken; return when the next step is due."""
        due = self.step(after)
        while due is None and not self.registrar.registered:
            assert self.woken.acquire(timeout=30), "nothing woke the service"
            due = self.step()
        return due

    def stop(self) -> None:
        self.registrar.stop()
        self.kubelet.stop()


@pytest.fixture(name="stand")
def _stand(tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture) -> Iterator[Stand]:
    caplog.set_level(logging.INFO)
    made = Stand(tmp_path_factory.mktemp("r"))
    yield made
    made.stop()


@pytest.mark.parametrize("prefer", [True, False])
def test_both_places_tell_the_same_options(tmp_path_factory: pytest.TempPathFactory, prefer: bool) -> None:
    stand = Stand(tmp_path_factory.mktemp("r"), prefer=prefer)
    stand.kubelet.start()
    stand.answered()
    (request,) = stand.kubelet.registrations
    assert request.options == stand.kubelet.options[RESOURCE]
    assert request.options.get_preferred_allocation_available is prefer
    stand.stop()


def test_a_kubelet_of_another_version_is_told_once_and_asked_again(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    stand.kubelet.refusal = VERSION
    stand.kubelet.start()
    pauses = [stand.answered()]
    for dummy in range(8):
        pauses.append(stand.answered(pauses[-1] or 0.0))
    assert caplog.text.count(VERSION) == 1
    # half a second that doubles, up to half a minute, each a fifth more or less
    assert [bounds[0] <= (pause or 0.0) <= bounds[1] for pause, bounds in zip(pauses, ((0.4, 0.6), (0.8, 1.2), (1.6, 2.4)))] == [True] * 3
    assert 24 <= (pauses[-1] or 0.0) <= 36
    stand.kubelet.refusal = ""
    stand.answered(pauses[-1] or 0.0)
    assert len(stand.kubelet.registrations) == 1


def test_a_socket_that_nobody_serves_is_told_once_and_asked_again(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stand.kubelet.socket))
    pause = stand.answered()
    stand.answered(pause or 0.0)
    assert caplog.text.count("UNAVAILABLE") == 1
    assert stand.step() is not None


def test_nothing_waits_for_a_kubelet_that_keeps_silent(stand: Stand) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(stand.kubelet.socket))
        silent.listen()
        assert stand.step() is None
        assert stand.step(1.0) is None
        assert not stand.registrar.registered
        stand.registrar.stop()
    assert stand.registrar.socket == ""


def test_another_kubelet_is_asked_at_once(stand: Stand) -> None:
    stand.kubelet.refusal = "starting"
    stand.kubelet.start()
    pause = stand.answered()
    assert stand.step() == pytest.approx(pause)
    stand.kubelet.stop()
    stand.kubelet.refusal = ""
    stand.kubelet.start()
    stand.answered()
    until(lambda: len(stand.kubelet.registrations) == 1, "the registration")


def test_a_kubelet_that_opens_no_stream_is_asked_again(stand: Stand) -> None:
    stand.kubelet.deaf = True
    stand.kubelet.start()
    assert stand.answered() == 5.0
    assert stand.step(4.0) == 1.0
    stand.kubelet.deaf = False
    stand.answered(1.0)
    until(lambda: len(stand.kubelet.registrations) == 2, "another registration")
    until(lambda: stand.registrar.registered or stand.step(), "the stream")


def test_a_stream_that_ends_is_asked_for_again(stand: Stand) -> None:
    stand.kubelet.start()
    stand.answered()
    until(lambda: RESOURCE in stand.kubelet.streams, "the stream")
    stand.kubelet.streams[RESOURCE].cancel()
    until(lambda: not stand.registrar.registered, "the end of the stream")
    stand.answered(6.0)
    assert len(stand.kubelet.registrations) == 2


def test_a_hundred_kubelets_leave_no_thread(stand: Stand) -> None:
    threads = 0
    for number in range(101):
        stand.kubelet.restart()
        stand.answered()
        until(lambda: stand.registrar.registered, "the stream")
        if number == 0:
            threads = threading.active_count()
    assert len(stand.kubelet.registrations) == 101
    until(lambda: threading.active_count() <= threads + 2, f"no more than {threads} threads")

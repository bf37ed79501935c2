"""When the whole machine is looked at for the reasons of what is skipped."""

from __future__ import annotations

import logging

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import Skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.reasons import Reasons

ONE = Skipped("1-1", "a.com/desk", "incomplete-bundle", "its bundle lacks usb product c31c")


class Looks:
    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def __call__(self) -> tuple[Skipped, ...]:
        self.count += 1
        if self.fails:
            raise Fault(what="list PCI functions", subject="/sys", cause="Permission denied")
        return (ONE,)


def test_the_first_look_waits_for_the_kubelet_but_not_for_ever() -> None:
    looks = Looks()
    reasons = Reasons(looks)
    assert reasons.find(0.0, registered=False) == 10.0
    assert reasons.find(9.0, registered=False) == 1.0
    assert looks.count == 0
    assert reasons.find(10.0, registered=False) is None
    assert (looks.count, reasons.skipped) == (1, (ONE,))


def test_it_looks_only_when_asked_and_once_for_what_was_asked_together() -> None:
    looks = Looks()
    reasons = Reasons(looks)
    reasons.find(0.0, registered=True)
    assert reasons.find(1000.0, registered=True) is None
    reasons.ask(1000.0)
    reasons.ask(1000.5)
    assert reasons.find(1000.6, registered=True) == pytest.approx(0.4)
    assert reasons.find(1001.0, registered=True) is None
    assert looks.count == 2


def test_each_reason_is_told_once_and_a_failed_look_leaves_them(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks()
    reasons = Reasons(looks)
    with caplog.at_level(logging.INFO):
        for now in (0.0, 10.0, 20.0):
            reasons.ask(now, 0.0)
            reasons.find(now, registered=True)
    assert caplog.text.count("1-1 (a.com/desk): not offered: its bundle lacks usb product c31c") == 1
    looks.fails = True
    reasons.ask(30.0, 0.0)
    reasons.find(30.0, registered=True)
    assert "Permission denied; the last reasons stay" in caplog.text
    assert reasons.skipped == (ONE,)


def test_a_unit_tells_its_reason_itself(caplog: pytest.LogCaptureFixture) -> None:
    reasons = Reasons(Looks(), lambda: {(ONE.resource, str(ONE.address))})
    with caplog.at_level(logging.INFO):
        reasons.find(0.0, registered=True)
    assert reasons.skipped == (ONE,)
    assert "not offered" not in caplog.text

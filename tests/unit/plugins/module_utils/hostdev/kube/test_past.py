"""What the service remembers: since when a unit is as it is, and which stored answers mean other devices now."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import PCI
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.past import Past
from ansible_collections.vfio.passthrough.tests.fakes.podresources import answer, entry, store

GPU, A = "a.com/gpu", "0000:01:00.0"


def unit(number: str = "16", reason: str = "") -> Offer:
    return Offer(PCI, GPU, number, A, (A,), trouble=reason)


def test_a_units_time_is_that_of_its_last_change(tmp_path: Path) -> None:
    hours = iter(range(4))
    past = Past(tmp_path, lambda: next(hours) * 3600.0)
    past.take([unit()], changed=True)
    assert past.since == {(GPU, "16"): "1970-01-01T00:00:00Z"}
    past.take([unit(), unit("17")], changed=True)
    assert past.since == {(GPU, "16"): "1970-01-01T00:00:00Z", (GPU, "17"): "1970-01-01T01:00:00Z"}
    past.take([unit("16", "no node"), unit("17")], changed=True)
    past.take([unit("16", "no node"), unit("17")], changed=False)
    assert past.since == {(GPU, "16"): "1970-01-01T02:00:00Z", (GPU, "17"): "1970-01-01T01:00:00Z"}
    past.take([unit("17")], changed=True)
    assert list(past.since) == [(GPU, "17")]


def test_b30_a_renumbered_answer_is_logged_once_and_goes_with_its_pod(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    past = Past(tmp_path)
    past.take([unit("17")], changed=True)
    assert not past.renumbered
    store(tmp_path, entry(GPU, ["16"], answer({"PCI_RESOURCE_A_COM_GPU": A})))
    past.take([unit("17")], changed=False)
    assert not past.renumbered
    for changed in (True, False, True):
        past.take([unit("17")], changed=changed)
        assert [one.now for one in past.renumbered] == [(f"{A} is unit 17 now",)]
    assert caplog.text.count("renumbered") == 1
    store(tmp_path)
    past.take([unit("17")], changed=False)
    assert not past.renumbered

"""What the plugin's figures are made from: percentiles, the kernel's count of memory, a machine of many cards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import load_declaration
from ansible_collections.vfio.passthrough.tests.bench import memory, peers


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert peers.percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_memory_is_that_of_the_process() -> None:
    before = memory.pss(os.getpid())
    held = bytearray(os.urandom(1)) * 64_000_000
    assert 60 < memory.pss(os.getpid()) - before < 80
    assert len(held) == 64_000_000


def test_a_machine_of_many_cards_offers_each(tmp_path: Path) -> None:
    host = peers.make_host(tmp_path, 256)
    offers = find(host.root, load_declaration(str(tmp_path / "etc/devices.json"))).offers
    assert [offer.id for offer in offers] == [str(number + 10) for number in range(256)]
    assert {offer.health for offer in offers} == {"Healthy"}

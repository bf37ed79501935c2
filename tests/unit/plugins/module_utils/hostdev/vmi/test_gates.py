"""Feature gates: KubeVirt's precedence, and names that mean nothing here."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import DEFAULTS, open_gates


def test_beta_is_on_and_alpha_is_off() -> None:
    assert open_gates() == DEFAULTS == {"GPUsWithDRA", "HostDevicesWithDRA"}


def test_a_gate_named_on_wins_over_one_named_off() -> None:
    assert "HostDevices" in open_gates(["HostDevices"], ["HostDevices"])
    assert "GPUsWithDRA" not in open_gates(off=["GPUsWithDRA"])


def test_an_unknown_gate_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused) as caught:
        open_gates(["HostDevice"])
    assert (caught.value.subject, caught.value.hint) == ("HostDevice", "the nearest is HostDevices")

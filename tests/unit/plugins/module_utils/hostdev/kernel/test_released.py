"""Devices that pods hold: a release does not take them unless forced, and what is no longer declared stays with its pod."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.holding import Asked, Holding
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import bound, released
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.pci import read_function
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import read_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.usage import pods_holding
from ansible_collections.vfio.passthrough.tests.fakes.kernel import GPUS, FakeKernel, add_process, demo_host

RESOURCE = "nvidia.com/GPU"
DECLARATION = parse_declaration([{"resource": RESOURCE, "select": {"id": "10de:2684"}}])
NATIVE = dict(zip(GPUS, ("nvidia", "snd_hda_intel") * 2))
HELD = Asked((Holding(RESOURCE, "10", "default", "vm-a", "compute"),))
WHO = f"pod default/vm-a holds 0000:01:00.0 (unit 10 of {RESOURCE})"


@pytest.fixture(name="kernel")
def both_bound(tmp_path: Path) -> FakeKernel:
    kernel = demo_host(tmp_path)
    bound.apply_bound(kernel.root, bound.plan_bound(kernel.root, DECLARATION, bound.Wishes()))
    return kernel


def release(kernel: FakeKernel, asked: Asked, *, force: bool = False) -> list[str]:
    """Give everything back and return the notes."""
    plan = released.plan_released(kernel.root, lambda: asked)
    released.check_released(plan, force)
    notes = released.result(kernel.root, plan, released.apply_released(kernel.root, plan))["notes"]
    assert isinstance(notes, list)
    return notes


def drivers(kernel: FakeKernel) -> dict[str, str]:
    return {name: kernel.driver(name) for name in GPUS}


def test_a_device_that_a_pod_holds_is_not_taken_and_both_are_named(kernel: FakeKernel) -> None:
    writes = len(kernel.writes)
    with pytest.raises(Busy) as caught:
        release(kernel, HELD)
    assert WHO in caught.value.cause
    assert caught.value.hint == "delete these pods first, or take their devices by force; nothing was changed"
    assert len(kernel.writes) == writes
    assert len(read_record(kernel.root).functions) == len(GPUS)


def test_force_takes_it_and_says_from_whom(kernel: FakeKernel) -> None:
    assert f"{WHO}; it is taken by force" in release(kernel, HELD, force=True)
    assert drivers(kernel) == NATIVE


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("asked", [HELD, Asked(fault="no such socket"), Asked()])
def test_no_force_takes_a_device_that_is_open(kernel: FakeKernel, force: bool, asked: Asked) -> None:
    add_process(kernel.host, 812, "qemu-system-x86", "/dev/vfio/10")
    with pytest.raises(Busy, match=r"process 812 \(qemu-system-x86\) has /dev/vfio/10 open.*stop the VMs on this node first"):
        release(kernel, asked, force=force)
    assert set(drivers(kernel).values()) == {"vfio-pci"}


def test_that_nobody_could_be_asked_is_told(kernel: FakeKernel) -> None:
    assert release(kernel, Asked(fault="no such socket")) == ["which pods hold the devices is not known: no such socket"]
    assert drivers(kernel) == NATIVE


def test_nobody_is_asked_when_nothing_moves(tmp_path: Path) -> None:
    def fail() -> Asked:
        raise AssertionError

    kernel = demo_host(tmp_path)
    assert not released.plan_released(kernel.root, fail).changes
    bound.plan_bound(kernel.root, DECLARATION, bound.Wishes(ask=fail))


def test_a_pod_of_another_device_is_in_nobodys_way(kernel: FakeKernel) -> None:
    others = (Holding(RESOURCE, "99", "default", "vm-b", "compute"), Holding("a.com/nic", "10", "default", "vm-c", "compute"))
    assert release(kernel, Asked(others)) == []


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (Holding(RESOURCE, "10", "d", "p", "c"), True),
        (Holding(RESOURCE, "11", "d", "p", "c"), False),
        # by another plugin, or under a name that the device had before
        (Holding("other.com/gpu", "x", "d", "p", "c", nodes=("/dev/vfio/vfio", "/dev/vfio/10")), True),
        (Holding("other.com/gpu", "x", "d", "p", "c", nodes=("/dev/vfio/vfio", "/dev/vfio/1")), False),
        (Holding("other.com/gpu", "10", "d", "p", "c"), False),
    ],
)
def test_a_holder_is_known_by_its_unit_or_by_a_node_that_it_was_handed(kernel: FakeKernel, held: Holding, found: bool) -> None:
    function = read_function(kernel.root, Address.parse("0000:01:00.0"))
    assert bool(pods_holding(function, RESOURCE, [held])) is found


def undeclare(kernel: FakeKernel, asked: Asked) -> dict[str, str]:
    """Run with an empty declaration; return the states by address, and the notes under one key."""
    plan = bound.plan_bound(kernel.root, parse_declaration([]), bound.Wishes(ask=lambda: asked))
    result = bound.result(kernel.root, plan, bound.apply_bound(kernel.root, plan))
    return {**{row["address"]: row["state"] for row in result["functions"]}, "notes": "; ".join(result["notes"])}


def test_what_is_no_longer_declared_stays_with_the_pod_that_holds_it(kernel: FakeKernel) -> None:
    told = undeclare(kernel, HELD)
    assert [told[name] for name in GPUS] == ["in use", "in use", "released", "released"]
    assert f"0000:01:00.0: no longer declared, stays on vfio-pci until nothing uses it: {WHO}" in told["notes"]
    assert (kernel.driver("0000:01:00.0"), kernel.driver("0000:02:00.0")) == ("vfio-pci", "nvidia")
    undeclare(kernel, Asked())
    assert drivers(kernel) == NATIVE


def test_that_nobody_could_be_asked_for_what_is_no_longer_declared_is_told(kernel: FakeKernel) -> None:
    told = undeclare(kernel, Asked(fault="no such program"))
    assert "which pods hold what is no longer declared is not known: no such program" in told["notes"]
    assert drivers(kernel) == NATIVE

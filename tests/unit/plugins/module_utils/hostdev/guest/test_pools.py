"""Pools: one per variable, counted before anything is drawn, no address twice."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.pools import Exhausted, Miscounted, Unset, read_pools

PREFIX = "PCI_RESOURCE"
A, B = "0000:81:00.0", "10000:e1:00.0"


def test_in_order_until_empty() -> None:
    pools = read_pools({"PCI_RESOURCE_X_IO_P": f"{A}, {B},"}, PREFIX, ["x.io/p"], Address.parse)
    assert [str(pools.take("x.io/p")) for dummy in range(2)] == [A, B]
    with pytest.raises(Exhausted, match=r"no more addresses in PCI_RESOURCE_X_IO_P="):
        pools.take("x.io/p")


def test_unset() -> None:
    with pytest.raises(Unset, match=r"x\.io/p: PCI_RESOURCE_X_IO_P is not set\. The device plugin sets it"):
        read_pools({}, PREFIX, ["x.io/p"], Address.parse).take("x.io/p")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "2 of the manifest's devices ask for x.io/p, and PCI_RESOURCE_X_IO_P is not set"),
        ({"PCI_RESOURCE_X_IO_P": ""}, "PCI_RESOURCE_X_IO_P='' (0 addresses)"),
        ({"PCI_RESOURCE_X_IO_P": A}, f"PCI_RESOURCE_X_IO_P='{A}' (1 addresses)"),
    ],
)
def test_counted_before_the_first_is_drawn(environment: dict[str, str], said: str) -> None:
    pools = read_pools(environment, PREFIX, ["x.io/p"], Address.parse)
    with pytest.raises(Miscounted) as caught:
        pools.check([("hostDevices[0]", "x.io/p"), ("gpus[0]", "x.io/p")])
    assert said in str(caught.value)
    assert caught.value.subject == ("gpus[0]" if environment.get("PCI_RESOURCE_X_IO_P") else "hostDevices[0]")


def test_more_addresses_than_devices_are_no_fault() -> None:
    pools = read_pools({"PCI_RESOURCE_X_IO_P": f"{A},{B}"}, PREFIX, ["x.io/p"], Address.parse)
    pools.check([("gpus[0]", "x.io/p")])
    assert str(pools.take("x.io/p")) == A


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"P_A": f"{A},{A}"}, f"{A}: it stands twice: P_A="),
        ({"P_A": "0000:0A:00.0,0000:0a:00.0"}, "0000:0a:00.0: it stands twice"),
        ({"P_A": A, "P_B": f"{B},{A}"}, f"{A}: it stands twice: P_A='{A}' and P_B="),
        ({"P_A": f"{A},,{B}"}, "P_A: "),
        ({"P_A": "0bad"}, "P_A: '0bad': not of the form"),
    ],
)
def test_refused_when_read(environment: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as caught:
        read_pools(environment, "P", ["a", "b"], Address.parse)
    assert said in str(caught.value)


def test_the_longer_prefix_is_another_variable() -> None:
    pools = read_pools({"MDEV_PCI_RESOURCE_X_IO_P": A}, PREFIX, ["x.io/p"], Address.parse)
    assert pools.of("x.io/p").value is None

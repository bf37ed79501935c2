"""Which address goes to which entry, and with which companions."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.environment import EnvironmentSource
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sources import Unit, entries_of, resolve
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import COMPANIONS, VARIABLE, with_gpus

A, B, C = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"


def units(environment: dict[str, str], *gpus: str, host_devices: tuple[str, ...] = ()) -> dict[str, Unit]:
    vmi = parse_manifest(with_gpus(*gpus, host_devices=host_devices))
    assert isinstance(vmi, VirtualMachineInstance)
    return {entry.device.name: unit for entry, unit in resolve(entries_of(vmi.spec), [EnvironmentSource(environment)])}


def unit(primary: str, *companions: str) -> Unit:
    return Unit(Address.parse(primary), tuple(Address.parse(one) for one in companions))


def test_host_devices_draw_first_and_the_pool_is_one() -> None:
    got = units({VARIABLE: f"{A},{B},{C}"}, "g1", "g2", host_devices=("h",))
    assert got == {"h": unit(A), "g1": unit(B), "g2": unit(C)}
    assert list(got) == ["h", "g1", "g2"]


def test_companions_follow_their_primary() -> None:
    environment = {VARIABLE: f"{A},{B}", COMPANIONS: "0000:02:00.0=0000:02:00.1+0000:02:00.2, 0000:01:00.0=0000:01:00.1"}
    assert units(environment, "a", "b") == {"a": unit(A, "0000:01:00.1"), "b": unit(B, "0000:02:00.1", "0000:02:00.2")}


def test_companions_of_one_of_two() -> None:
    assert units({VARIABLE: f"{A},{B}", COMPANIONS: f"{B}=0000:02:00.1"}, "a", "b") == {"a": unit(A), "b": unit(B, "0000:02:00.1")}


@pytest.mark.parametrize(
    ("companions", "said"),
    [
        ("0000:01:00.1", "not of the form PRIMARY=A+B"),
        (f"{A}=", f"{COMPANIONS}: ''"),
        (f"{A}=x", f"{COMPANIONS}: 'x'"),
        (f"{C}=0000:03:00.1", f"{C} is not in {VARIABLE}="),
        (f"{A}={B}", f"{B} stands in {VARIABLE} too"),
        (f"{A}=0000:01:00.1,{B}=0000:01:00.1", f"0000:01:00.1 stands in {COMPANIONS} too"),
        (f"{A}=0000:01:00.1,{A}=0000:01:00.2", f"{A} has companions twice"),
        (f"{A}=" + "+".join(f"0000:01:01.{n}" for n in range(8)), "8 companions; a slot has room for 7"),
    ],
)
def test_companions_refused(companions: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        units({VARIABLE: f"{A},{B}", COMPANIONS: companions}, "a", "b")
    assert said in str(caught.value)
    assert COMPANIONS in str(caught.value)


def test_an_entry_that_no_source_serves() -> None:
    vmi = parse_manifest(with_gpus("g"))
    assert isinstance(vmi, VirtualMachineInstance)
    with pytest.raises(Refused, match=r"spec\.domain\.devices\.gpus\[0\] \(g\)"):
        resolve(entries_of(vmi.spec), [])

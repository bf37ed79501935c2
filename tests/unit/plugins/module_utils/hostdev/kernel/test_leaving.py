"""Functions that an earlier declaration meant: given back when idle, left alone while in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import bound
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import PLACE, read_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import read_text
from ansible_collections.vfio.passthrough.tests.fakes.kernel import GPUS, FakeKernel, Killed, add_process, demo_host

RULES = "etc/udev/rules.d/40-vfio-passthrough.rules"
FIRST, SECOND = GPUS[:2], GPUS[2:]
NATIVE = {"0000:01:00.0": "nvidia", "0000:01:00.1": "snd_hda_intel", "0000:02:00.0": "nvidia", "0000:02:00.1": "snd_hda_intel"}


def declared(*addresses: str) -> Declaration:
    return parse_declaration([{"resource": "nvidia.com/GPU", "select": {"address": address}} for address in addresses])


BOTH, ONE, NONE = declared(FIRST[0], SECOND[0]), declared(FIRST[0]), declared()


def plan_of(kernel: FakeKernel, declaration: Declaration, **wishes: Any) -> bound.BoundPlan:
    plan = bound.plan_bound(kernel.root, declaration, bound.Wishes(**wishes))
    bound.check_bound(plan)
    return plan


def run(kernel: FakeKernel, declaration: Declaration, **wishes: Any) -> dict[str, Any]:
    plan = plan_of(kernel, declaration, **wishes)
    return bound.result(kernel.root, plan, bound.apply_bound(kernel.root, plan))


def states(result: dict[str, Any]) -> dict[str, str]:
    return {row["address"]: row["state"] for row in result["functions"]}


def drivers(kernel: FakeKernel) -> dict[str, str]:
    return {name: kernel.driver(name) for name in GPUS}


@pytest.fixture(name="kernel")
def both_bound(tmp_path: Path) -> FakeKernel:
    kernel = demo_host(tmp_path)
    run(kernel, BOTH)
    return kernel


ONE_LEFT = {**NATIVE, **dict.fromkeys(FIRST, "vfio-pci")}


def test_what_is_no_longer_declared_goes_back_whole_and_the_next_run_is_quiet(kernel: FakeKernel, tmp_path: Path) -> None:
    result = run(kernel, ONE)
    assert drivers(kernel) == ONE_LEFT
    assert {kernel.override(name) for name in SECOND} == {"(null)"}
    assert list(read_record(kernel.root).functions) == list(FIRST)
    assert "0000:02:00" not in (tmp_path / RULES).read_text(encoding="ascii")
    assert (result["changed"], result["reboot_required"]) == (True, False)
    assert states(result) == {**dict.fromkeys(FIRST, "bound"), **dict.fromkeys(SECOND, "released")}
    again = run(kernel, ONE)
    assert (again["changed"], again["diff"], list(states(again))) == (False, [], list(FIRST))


def test_an_empty_declaration_takes_all_back(kernel: FakeKernel, tmp_path: Path) -> None:
    run(kernel, NONE)
    assert drivers(kernel) == NATIVE
    assert not (tmp_path / PLACE.lstrip("/")).exists()
    assert not (tmp_path / RULES).exists()
    assert run(kernel, NONE)["changed"] is False


def test_the_plan_alone_shows_it_and_touches_nothing(kernel: FakeKernel) -> None:
    before = (list(kernel.writes), read_text(kernel.root.at(PLACE)))
    plan = plan_of(kernel, ONE)
    result = bound.result(kernel.root, plan)
    assert result["changed"]
    assert "0000:02:00.0 vfio-pci" in result["diff"][0]["before"]
    assert "0000:02:00.0 nvidia" in result["diff"][0]["after"]
    assert states(result)["0000:02:00.0"] == "bound"
    assert (kernel.writes, read_text(kernel.root.at(PLACE))) == before


def test_a_guest_keeps_its_device_until_it_ends(kernel: FakeKernel, tmp_path: Path) -> None:
    add_process(kernel.host, 812, "qemu-system-x86", "/dev/vfio/11")
    writes = len(kernel.writes)
    for changed in (True, False):
        result = run(kernel, ONE)
        assert (result["changed"], result["reboot_required"], len(kernel.writes)) == (changed, False, writes)
        assert states(result)["0000:02:00.0"] == "in use"
        assert any("process 812 (qemu-system-x86) has /dev/vfio/11 open" in note for note in result["notes"])
    (tmp_path / "proc/812/fd/0").unlink()
    run(kernel, ONE)
    assert drivers(kernel) == ONE_LEFT


def test_what_was_bound_before_us_stays_as_it_was(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.run(["modprobe", "vfio-pci"], 1)
    for name in SECOND:
        kernel.host.bind(kernel.host.folder_of(name), "vfio-pci")
    run(kernel, BOTH)
    writes = len(kernel.writes)
    result = run(kernel, ONE)
    assert (drivers(kernel), len(kernel.writes)) == (dict.fromkeys(GPUS, "vfio-pci"), writes)
    assert list(read_record(kernel.root).functions) == list(FIRST)
    assert any("was bound before us and stays so" in note for note in result["notes"])


def test_what_was_bound_before_us_loses_our_override_in_one_run(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.run(["modprobe", "vfio-pci"], 1)
    for name in SECOND:
        kernel.host.bind(kernel.host.folder_of(name), "vfio-pci")
    run(kernel, BOTH)
    for name in SECOND:
        # as the rule for the next boot does
        (kernel.host.folder_of(name) / "driver_override").write_text("vfio-pci\n", encoding="ascii")
    assert run(kernel, ONE)["changed"]
    assert {kernel.override(name) for name in SECOND} == {"(null)"}
    assert list(read_record(kernel.root).functions) == list(FIRST)
    assert run(kernel, ONE)["changed"] is False


def test_not_now_leaves_it_to_the_next_boot(kernel: FakeKernel, tmp_path: Path) -> None:
    writes = len(kernel.writes)
    result = run(kernel, ONE, now=False)
    assert (len(kernel.writes), result["reboot_required"], states(result)["0000:02:00.0"]) == (writes, True, "pending reboot")
    assert "0000:02:00" not in (tmp_path / RULES).read_text(encoding="ascii")
    boot(kernel)
    after = run(kernel, ONE)
    assert (after["reboot_required"], list(read_record(kernel.root).functions)) == (False, list(FIRST))
    assert run(kernel, ONE)["changed"] is False


def boot(kernel: FakeKernel) -> None:
    """Start the machine anew: the second card comes up as its host has it, nothing below /run is left."""
    kernel.host.write("/proc/sys/kernel/random/boot_id", "boot-2\n")
    for name in SECOND:
        kernel.host.bind(kernel.host.folder_of(name), kernel.natives.get(name, ""))
        (kernel.host.folder_of(name) / "driver_override").write_text("(null)\n", encoding="ascii")
    for place in sorted((kernel.host.base / "run").rglob("*"), reverse=True):
        if place.is_dir():
            place.rmdir()
        else:
            place.unlink()


def test_a_driver_that_does_not_take_it_waits_for_one_boot_and_not_for_ever(kernel: FakeKernel) -> None:
    native = kernel.natives.pop("0000:02:00.0")
    for _run in range(2):
        result = run(kernel, ONE)
        assert (result["reboot_required"], states(result)["0000:02:00.0"]) == (True, "pending reboot")
    boot(kernel)
    result = run(kernel, ONE)
    assert (result["reboot_required"], list(read_record(kernel.root).functions)) == (False, list(FIRST))
    assert any("no driver took it at boot" in note for note in result["notes"])
    assert native == "nvidia"


def test_an_unbind_that_hung_is_not_touched_again(kernel: FakeKernel) -> None:
    kernel.hanging.add("0000:02:00.0")
    assert run(kernel, ONE)["reboot_required"]
    writes = len(kernel.writes)
    result = run(kernel, ONE)
    assert (len(kernel.writes), result["reboot_required"], result["changed"]) == (writes, True, False)


@pytest.mark.parametrize("writes", range(8))
def test_killed_in_the_middle_the_next_run_converges(kernel: FakeKernel, writes: int) -> None:
    kernel.answers["modprobe"] = ""
    kernel.dies_after = len(kernel.writes) + writes
    try:
        run(kernel, ONE)
    except Killed:
        kernel.dies_after = None
        run(kernel, ONE)
    assert drivers(kernel) == ONE_LEFT
    assert list(read_record(kernel.root).functions) == list(FIRST)


def test_declared_again_it_is_bound_again(kernel: FakeKernel) -> None:
    run(kernel, ONE)
    run(kernel, BOTH)
    assert drivers(kernel) == dict.fromkeys(GPUS, "vfio-pci")
    assert read_record(kernel.root).functions["0000:02:00.0"].driver == "nvidia"

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy, Fault, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import bound, released
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import PLACE, read_record
from ansible_collections.vfio.passthrough.tests.fakes.kernel import GPUS, FakeKernel, Killed, add_process, demo_host, intel

RESOURCE = "nvidia.com/AD102_GEFORCE_RTX_4090"
NATIVE = {"0000:01:00.0": "nvidia", "0000:01:00.1": "snd_hda_intel", "0000:02:00.0": "nvidia", "0000:02:00.1": "snd_hda_intel"}


def declared(**select: str) -> Declaration:
    return parse_declaration([{"resource": RESOURCE, "select": select or {"id": "10de:2684"}}])


def run(kernel: FakeKernel, declaration: Declaration | None = None, wishes: bound.Wishes | None = None) -> dict[str, object]:
    root = kernel.root
    plan = bound.plan_bound(root, declaration or declared(), wishes or bound.Wishes())
    bound.check_bound(plan)
    return bound.result(root, plan, bound.apply_bound(root, plan))


def back(kernel: FakeKernel) -> dict[str, object]:
    plan = released.plan_released(kernel.root)
    released.check_released(plan)
    return released.result(kernel.root, plan, released.apply_released(kernel.root, plan))


def drivers(kernel: FakeKernel) -> dict[str, str]:
    return {name: kernel.driver(name) for name in GPUS}


def files(kernel: FakeKernel) -> set[str]:
    tops = ("etc", "usr", "var", "run")
    return {str(one.relative_to(kernel.host.base)) for top in tops for one in (kernel.host.base / top).rglob("*") if not one.is_dir()}


BOUND = dict.fromkeys(GPUS, "vfio-pci")


def test_both_groups_are_bound_with_their_companions(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    result = run(kernel)
    assert drivers(kernel) == BOUND
    assert result["changed"]
    assert not result["reboot_required"]
    rows = result["functions"]
    assert isinstance(rows, list)
    assert [(row["address"], row["part"], row["former"], row["state"], row["group"]) for row in rows] == [
        ("0000:01:00.0", "selected", "nvidia", "bound", "10"),
        ("0000:01:00.1", "companion", "snd_hda_intel", "bound", "10"),
        ("0000:02:00.0", "selected", "nvidia", "bound", "11"),
        ("0000:02:00.1", "companion", "snd_hda_intel", "bound", "11"),
    ]


def test_all_overrides_stand_before_the_first_unbind_and_companions_leave_first(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel, declared(address="0000:01:00.0"))
    assert kernel.writes == [
        "0000:01:00.0 driver_override vfio-pci",
        "0000:01:00.1 driver_override vfio-pci",
        "0000:01:00.1 unbind 0000:01:00.1",
        "0000:01:00.0 unbind 0000:01:00.0",
        "0000:01:00.0 drivers_probe 0000:01:00.0",
        "0000:01:00.1 drivers_probe 0000:01:00.1",
    ]


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    before = len(kernel.writes)
    result = run(kernel)
    assert (result["changed"], result["diff"], len(kernel.writes)) == (False, [], before)


def test_the_plan_alone_touches_nothing(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    before = files(kernel)
    plan = bound.plan_bound(kernel.root, declared(), bound.Wishes())
    assert plan.changes
    assert "0000:01:00.0 nvidia" in plan.diffs()[0]["before"]
    assert "0000:01:00.0 vfio-pci" in plan.diffs()[0]["after"]
    assert (kernel.writes, files(kernel)) == ([], before)


def test_given_back_leaves_nothing(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    before = files(kernel)
    run(kernel)
    result = back(kernel)
    assert drivers(kernel) == NATIVE
    assert {kernel.override(name) for name in GPUS} == {"(null)"}
    assert files(kernel) == before
    assert not (tmp_path / "var/lib/vfio-passthrough").exists()
    assert (result["changed"], result["reboot_required"]) == (True, False)
    assert back(kernel)["changed"] is False


def test_a_miss_rolls_all_functions_of_the_group_back(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.refusing.add("0000:01:00.1")
    kernel.answers["dmesg"] = "[   12.5] vfio-pci: probe of 0000:01:00.1 failed with error -22\n"
    with pytest.raises(Fault) as caught:
        run(kernel, declared(address="0000:01:00.0"))
    assert drivers(kernel) == NATIVE
    assert kernel.override("0000:01:00.0") == "(null)"
    for words in ("0000:01:00.1", "reads nothing instead of vfio-pci", "failed with error -22", "0000:01:00.0 is back on nvidia"):
        assert words in caught.value.text()


def test_a_card_that_refuses_does_not_keep_the_others_from_being_boot_safe(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.refusing.add("0000:01:00.1")
    rules = tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules"
    for _run in range(2):
        with pytest.raises(Fault, match=r"cannot bind to vfio-pci: .*group 10.*0000:01:00.1"):
            run(kernel)
        assert drivers(kernel) == {**NATIVE, **dict.fromkeys(GPUS[2:], "vfio-pci")}
        text = rules.read_text(encoding="ascii")
        assert [name in text for name in GPUS] == [False, False, True, True]
    kernel.refusing.clear()
    run(kernel)
    assert drivers(kernel) == BOUND
    assert all(name in rules.read_text(encoding="ascii") for name in GPUS)


def test_all_cards_that_refuse_are_told_at_once(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.refusing.update({"0000:01:00.0", "0000:02:00.0"})
    with pytest.raises(Fault, match=r"group 10.*group 11.*0000:01:00.0.*0000:02:00.0"):
        run(kernel)
    assert drivers(kernel) == NATIVE
    assert not (tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules").exists()


def test_what_hangs_is_told_with_what_refuses(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.hanging.add("0000:01:00.0")
    kernel.refusing.add("0000:02:00.0")
    with pytest.raises(Fault, match=r"group 11.*0000:02:00.0.*0000:01:00.0 hangs in its driver"):
        run(kernel)
    text = (tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules").read_text(encoding="ascii")
    assert [name in text for name in GPUS] == [True, True, False, False]


def test_an_unbind_that_hangs_means_reboot_and_is_not_tried_again(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.hanging.add("0000:01:00.0")
    result = run(kernel, declared(address="0000:01:00.0"))
    assert result["reboot_required"]
    assert kernel.driver("0000:01:00.1") == "snd_hda_intel"
    assert (tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules").exists()
    writes = len(kernel.writes)
    again = run(kernel, declared(address="0000:01:00.0"))
    assert (again["changed"], again["refused"], again["reboot_required"], len(kernel.writes)) == (False, [], True, writes)
    notes, rows = again["notes"], again["functions"]
    assert isinstance(notes, list)
    assert any(note.startswith("0000:01:00.0: its unbind did not return in this boot") for note in notes)
    assert isinstance(rows, list)
    assert {row["state"] for row in rows} == {"pending reboot"}
    assert run(kernel)["reboot_required"]
    assert {kernel.driver(name) for name in GPUS[2:]} == {"vfio-pci"}
    kernel.host.write("/proc/sys/kernel/random/boot_id", "boot-2\n")
    kernel.hanging.clear()
    run(kernel, declared(address="0000:01:00.0"))
    assert kernel.driver("0000:01:00.0") == "vfio-pci"


@pytest.mark.parametrize("hung_while", ["binding", "giving back"])
def test_release_does_not_touch_what_hangs_and_takes_the_files_away(tmp_path: Path, hung_while: str) -> None:
    kernel = demo_host(tmp_path)
    before = files(kernel)
    if hung_while == "binding":
        kernel.hanging.add("0000:01:00.0")
        run(kernel)
    else:
        run(kernel)
        kernel.hanging.add("0000:01:00.0")
        back(kernel)
    writes = len(kernel.writes)
    result = back(kernel)
    assert not [line for line in kernel.writes[writes:] if "0000:01:00.0" in line]
    assert result["reboot_required"]
    assert "0000:01:00.0: its unbind did not return in this boot" in result["notes"]  # type: ignore[operator]
    assert list(read_record(kernel.root).functions) == ["0000:01:00.0"]
    assert files(kernel) - before == {PLACE.lstrip("/"), "run/vfio-passthrough/hung/0000:01:00.0"}
    assert {name: kernel.driver(name) for name in GPUS[1:]} == {name: NATIVE[name] for name in GPUS[1:]}
    again = back(kernel)
    assert (again["changed"], again["reboot_required"]) == (False, True)


@pytest.mark.parametrize("writes", range(12))
def test_killed_after_any_write_the_next_run_converges(tmp_path: Path, writes: int) -> None:
    kernel = demo_host(tmp_path)
    kernel.dies_after = writes
    with pytest.raises(Killed):
        run(kernel)
    kernel.dies_after = None
    run(kernel)
    assert drivers(kernel) == BOUND
    assert {name: one.driver for name, one in read_record(kernel.root).functions.items()} == NATIVE
    back(kernel)
    assert drivers(kernel) == NATIVE


@pytest.mark.parametrize("writes", range(12))
def test_killed_while_giving_back_the_next_run_converges(tmp_path: Path, writes: int) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    kernel.answers["modprobe"] = ""
    kernel.dies_after = len(kernel.writes) + writes
    with pytest.raises(Killed):
        back(kernel)
    kernel.dies_after = None
    back(kernel)
    assert drivers(kernel) == NATIVE
    assert not (tmp_path / "var/lib/vfio-passthrough").exists()


def test_killed_between_record_and_first_write_is_as_if_nothing_was(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.dies_after = 0
    with pytest.raises(Killed):
        run(kernel)
    assert (tmp_path / PLACE.lstrip("/")).exists()
    kernel.dies_after = None
    back(kernel)
    assert drivers(kernel) == NATIVE


def test_a_killed_run_that_is_given_back_restores_the_drivers(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.dies_after = 4
    with pytest.raises(Killed):
        run(kernel, declared(address="0000:01:00.0"))
    assert kernel.driver("0000:01:00.0") == ""
    kernel.dies_after = None
    back(kernel)
    assert drivers(kernel) == NATIVE


def test_what_was_bound_before_us_stays_bound(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.run(["modprobe", "vfio-pci"], 1)
    for name in GPUS[:2]:
        kernel.host.bind(kernel.host.folder_of(name), "vfio-pci")
    run(kernel)
    result = back(kernel)
    assert drivers(kernel) == {**NATIVE, GPUS[0]: "vfio-pci", GPUS[1]: "vfio-pci"}
    assert not result["reboot_required"]


def test_without_iommu_only_the_next_boot_is_prepared(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    intel(kernel.host, active=False, arguments="intel_iommu=off")
    (tmp_path / "sys/class/iommu/dmar0").rmdir()
    result = run(kernel)
    assert (kernel.writes, result["reboot_required"]) == ([], True)
    rows = result["functions"]
    assert isinstance(rows, list)
    assert {row["state"] for row in rows} == {"pending reboot"}
    assert "10de" in (tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules").read_text(encoding="ascii")


def test_an_active_iommu_that_lacks_something_is_noted(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    sound = run(kernel)["notes"]
    kernel.host.write("/proc/interrupts", "  1:  0  IO-APIC  1-edge  i8042\n")
    lacking = run(kernel)["notes"]
    assert isinstance(sound, list)
    assert isinstance(lacking, list)
    assert lacking[1:] == sound
    assert lacking[0].startswith("IOMMU_NO_INTR_REMAP: VMs will fail to start with EPERM")


def test_groups_that_changed_are_noted_once(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    place = tmp_path / PLACE.lstrip("/")
    place.write_text(place.read_text(encoding="utf-8").replace('"group": "10"', '"group": "9"'), encoding="utf-8")
    first, second = run(kernel)["notes"], run(kernel)["notes"]
    assert [isinstance(notes, list) and any("GROUPS_CHANGED" in note for note in notes) for notes in (first, second)] == [True, False]


def test_the_plan_shows_what_the_reboot_will_do_until_all_is_prepared(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    intel(kernel.host, active=False, arguments="intel_iommu=off")
    (tmp_path / "sys/class/iommu/dmar0").rmdir()
    first = bound.plan_bound(kernel.root, declared(address="0000:01:00.0"), bound.Wishes()).diffs()[0]
    assert first == {
        "before_header": "drivers",
        "after_header": "drivers, after the reboot",
        "before": "0000:01:00.0 nvidia\n0000:01:00.1 snd_hda_intel\n",
        "after": "0000:01:00.0 vfio-pci\n0000:01:00.1 vfio-pci\n",
    }
    run(kernel, declared(address="0000:01:00.0"))
    again = run(kernel, declared(address="0000:01:00.0"))
    assert (again["changed"], again["diff"], again["reboot_required"]) == (False, [], True)


def test_without_iommu_in_the_firmware_nothing_is_written(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    (tmp_path / "sys/class/iommu/dmar0").rmdir()
    (tmp_path / "sys/firmware/acpi/tables/DMAR").unlink()
    before = files(kernel)
    with pytest.raises(Unsupported, match="IOMMU_FIRMWARE.*VT-d"):
        run(kernel)
    assert (kernel.writes, files(kernel)) == ([], before)


def test_not_now_moves_nothing(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    result = run(kernel, wishes=bound.Wishes(now=False))
    assert (kernel.writes, result["reboot_required"]) == ([], True)
    assert (tmp_path / "etc/systemd/system/vfio-passthrough-verify.service").exists()


def test_no_such_device_names_entry_and_selector(tmp_path: Path) -> None:
    with pytest.raises(Absent, match=r"hostdev_devices\[0\].*id 10de:ffff"):
        run(demo_host(tmp_path), declared(id="10de:ffff"))


def test_a_device_that_a_guest_holds_is_not_given_back(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    add_process(kernel.host, 812, "qemu-system-x86", "/dev/vfio/10")
    with pytest.raises(Busy, match=r"process 812 \(qemu-system-x86\) has /dev/vfio/10 open"):
        back(kernel)
    assert drivers(kernel) == BOUND
    assert run(kernel)["changed"] is False


def test_a_card_that_does_not_come_back_is_reported_and_stays_recorded(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    del kernel.natives["0000:02:00.0"]
    result = back(kernel)
    assert result["reboot_required"]
    assert list(read_record(kernel.root).functions) == ["0000:02:00.0"]
    kernel.natives["0000:02:00.0"] = "nvidia"
    assert back(kernel)["reboot_required"] is False
    assert drivers(kernel) == NATIVE


def test_a_lost_record_does_not_make_our_binding_somebody_elses(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    (tmp_path / PLACE.lstrip("/")).unlink()
    run(kernel)
    back(kernel)
    assert drivers(kernel) == NATIVE


def test_another_card_at_a_recorded_address_is_left_alone(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    run(kernel)
    kernel.host.function("0000:02:00.0", "8086:1533", "020000", driver="igb")
    result = back(kernel)
    assert kernel.driver("0000:02:00.0") == "igb"
    assert "0000:02:00.0: another card (8086:1533) is there now" in result["notes"]  # type: ignore[operator]


def test_a_function_on_another_vfio_driver_is_neither_moved_nor_bound_at_boot(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.bind(kernel.host.folder_of("0000:01:00.0"), "nvgrace_gpu_vfio_pci")
    (kernel.host.folder_of("0000:01:00.0") / "vfio-dev/vfio0").mkdir(parents=True)
    run(kernel)
    assert kernel.driver("0000:01:00.0") == "nvgrace_gpu_vfio_pci"
    assert '"0000:01:00.0"' not in (tmp_path / "etc/udev/rules.d/40-vfio-passthrough.rules").read_text(encoding="ascii")

"""Boot arguments on a machine that GRUB starts: there and back, and what stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootargs import ensure
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootloader import loader_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootplan import Wish
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.grub import OURS
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import read_state
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import PLACE as RECORD
from ansible_collections.vfio.passthrough.tests.fakes.grub import SETTINGS, Machine


def run(machine: Machine, *, check: bool = False, **wish: Any) -> dict[str, Any]:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in wish.items()}
    asked = Wish(**given)
    return ensure(machine.root, loader_of(machine.root), read_state(machine.root), asked, check=check)


def activate(machine: Machine) -> None:
    machine.put("/sys/class/iommu/dmar0/uevent", "")
    machine.put("/sys/kernel/iommu_groups/0/type", "DMA\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_switching_off_words_go_from_every_entry_and_the_needed_one_comes(machine: Machine) -> None:
    before = machine.settings()
    result = run(machine)
    assert result["changed"] is True
    assert result["reboot_required"] is True
    assert (result["added"], result["removed"]) == (["intel_iommu=on"], ["iommu=off", "intel_iommu=off"])
    linux = [line for line in machine.menu().splitlines() if "linux\t/boot/vmlinuz" in line]
    assert not [line for line in linux if "iommu=off" in line]
    assert ["intel_iommu=on" in line for line in linux] == [True, True, False, True, False]
    # everything else stays, spelling and order
    assert 'console=tty0 dyndbg="file drivers/pci/* +p" quiet console=ttyS0 intel_iommu=on' in " ".join(linux[1].split())
    assert {name: text for name, text in machine.settings().items() if not name.endswith("zz-vfio-passthrough.cfg")} == before


def test_second_run_changes_nothing_before_and_after_the_reboot(machine: Machine) -> None:
    run(machine)
    waiting = run(machine)
    assert (waiting["changed"], waiting["reboot_required"], waiting["diff"]) == (False, True, [])
    machine.boot()
    activate(machine)
    settled = run(machine)
    assert (settled["changed"], settled["reboot_required"]) == (False, False)
    assert machine.generated == 2


def test_undo_is_byte_for_byte(machine: Machine) -> None:
    before, menu = machine.settings(), machine.menu()
    run(machine)
    machine.boot()
    activate(machine)
    result = run(machine, absent=True)
    assert (result["changed"], result["reboot_required"]) == (True, True)
    assert (machine.settings(), machine.menu()) == (before, menu)
    assert not machine.root_path(RECORD).parent.exists()
    assert result["added"] == ["iommu=off", "intel_iommu=off"]
    assert result["removed"] == ["intel_iommu=on"]
    again = run(machine, absent=True)
    assert (again["changed"], again["reboot_required"]) == (False, True)
    machine.boot()
    assert run(machine, absent=True)["reboot_required"] is False


def test_the_fragments_folder_goes_when_we_made_it(machine: Machine) -> None:
    folder = machine.root_path(OURS).parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    run(machine)
    run(machine, absent=True)
    assert not folder.exists()


def test_record_is_there_before_the_first_change(machine: Machine) -> None:
    run(machine)
    record = json.loads(machine.root_path(RECORD).read_text(encoding="utf-8"))["arguments"]
    assert record["loader"] == "grub"
    assert "iommu=off" in record["lines"]["Debian GNU/Linux"]
    assert machine.root_path(RECORD).stat().st_mode & 0o777 == 0o600


def test_undo_leaves_the_rest_of_the_record(machine: Machine) -> None:
    machine.put(RECORD, '{"version": 1, "functions": {"0000:01:00.0": {"id": "10de:2684", "driver": "nvidia"}}, "later": 1}')
    run(machine)
    assert run(machine, absent=True)["changed"] is True
    record = json.loads(machine.root_path(RECORD).read_text(encoding="utf-8"))
    assert (list(record["functions"]), record["later"], record["arguments"]) == (["0000:01:00.0"], 1, None)
    assert run(machine, absent=True)["changed"] is False


@pytest.mark.parametrize("absent", [False, True])
def test_check_mode_says_what_the_real_run_does_and_writes_nothing(machine: Machine, absent: bool) -> None:
    if absent:
        run(machine)
    before = (machine.settings(), machine.menu(), machine.generated, machine.root_path(RECORD).exists())
    said = run(machine, check=True, absent=absent)
    assert (machine.settings(), machine.menu(), machine.generated, machine.root_path(RECORD).exists()) == before
    assert said == run(machine, absent=absent)


def test_diff_shows_our_file_and_the_menu(machine: Machine) -> None:
    ours, menu = run(machine, check=True)["diff"]
    assert (ours["before_header"], ours["before"]) == (OURS, "")
    assert ours["after"].endswith("vfio_passthrough_add intel_iommu=on\n")
    assert "intel_iommu=off" in menu["before"]
    assert "intel_iommu=off" not in menu["after"].replace(menu["after"].splitlines()[-1], "")


def test_explicit_words(machine: Machine) -> None:
    result = run(machine, arguments=["iommu=pt", "pci=realloc", "hugepagesz=1G", "hugepages=2"], remove=["console=ttyS0", "absent"])
    assert result["added"] == ["iommu=pt", "pci=realloc", "hugepagesz=1G", "hugepages=2"]
    assert result["removed"] == ["console=ttyS0"]
    # nobody asked for an IOMMU driver's word, so what switches one off is none of this wish
    assert "iommu=off" in result["next_boot"]
    shorter = run(machine, arguments=["iommu=pt"], remove=["console=ttyS0"])
    assert shorter["removed"] == ["pci=realloc", "hugepagesz=1G", "hugepages=2"]
    assert run(machine, arguments=["iommu=pt"], remove=["console=ttyS0"])["changed"] is False
    assert run(machine, arguments=[])["added"] == ["console=ttyS0"]
    assert not machine.root_path(OURS).exists()


def test_asking_for_a_drivers_word_takes_out_what_switches_it_off(machine: Machine) -> None:
    assert run(machine, arguments=["intel_iommu=on"])["removed"] == ["iommu=off", "intel_iommu=off"]


def test_a_word_that_others_set_is_not_added_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SETTINGS.replace("intel_iommu=off", "intel-iommu=on iommu=pt"))
    result = run(machine, arguments=["auto", "iommu=pt"])
    assert (result["added"], result["removed"]) == ([], ["iommu=off"])
    assert result["next_boot"].count("iommu=pt") == 1


def test_an_interrupted_run_converges(machine: Machine) -> None:
    old = machine.menu()
    run(machine)
    machine.put("/boot/grub/grub.cfg", old)
    assert run(machine)["changed"] is True
    assert run(machine)["changed"] is False


def test_an_interrupted_undo_converges(machine: Machine) -> None:
    run(machine)
    changed = machine.menu()
    machine.root_path(OURS).unlink()
    assert machine.menu() == changed
    assert run(machine, absent=True)["changed"] is True
    assert "intel_iommu=on" not in machine.menu()


def test_a_failing_generator_leaves_the_machine_as_it_was(machine: Machine) -> None:
    before = machine.settings()
    machine.breaks = True
    with pytest.raises(Fault, match="Unterminated quoted string"):
        run(machine)
    assert machine.settings() == before
    assert not machine.root_path(RECORD).exists()


def test_a_menu_that_does_not_follow_is_found_by_reading_it_back(machine: Machine) -> None:
    before = machine.settings()
    machine.stubborn = True
    with pytest.raises(Fault, match="yet it holds Debian GNU/Linux: root=") as caught:
        run(machine)
    assert "put back" in caught.value.hint
    assert machine.settings() == before


def test_broken_settings_are_the_administrators_and_named(machine: Machine) -> None:
    machine.put("/etc/default/grub.d/99-broken.cfg", 'GRUB_CMDLINE_LINUX="open\n')
    with pytest.raises(Fault, match="evaluate GRUB's settings"):
        run(machine)


def test_firmware_without_a_table_is_told_and_nothing_is_written(machine: Machine) -> None:
    machine.root_path("/sys/firmware/acpi/tables/DMAR").unlink()
    before = machine.settings()
    with pytest.raises(Unsupported, match="VT-d"):
        run(machine)
    assert machine.settings() == before


def test_contradiction_is_refused(machine: Machine) -> None:
    with pytest.raises(Refused, match="both to be there and to be removed"):
        run(machine, arguments=["iommu=pt"], remove=["iommu=pt"])


def test_a_line_that_would_be_cut_is_refused_before_anything_is_written(machine: Machine) -> None:
    before = machine.settings()
    with pytest.raises(Refused, match="the kernel takes 2048"):
        run(machine, arguments=["x=" + "y" * 2048])
    assert machine.settings() == before


def test_words_after_two_dashes_are_inits_and_found_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SETTINGS.replace("quiet intel_iommu=off", "quiet --"))
    with pytest.raises(Fault, match="yet it holds"):
        run(machine)


def test_the_fragment_keeps_what_it_does_not_touch(machine: Machine) -> None:
    settings = "GRUB_CMDLINE_LINUX='iommu=off'\nGRUB_CMDLINE_LINUX_DEFAULT='a  iommu=off iommu=off xiommu=off\tiommu=off b=\"c  d\" $x *'\n"
    machine.put("/etc/default/grub", settings)
    machine.run(["/usr/sbin/update-grub"], 1)
    run(machine)
    assert 'ro  a  xiommu=off b="c  d" $x * console=ttyS0 intel_iommu=on' in machine.menu()

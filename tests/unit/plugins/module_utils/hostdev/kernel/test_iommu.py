from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.pci import Function
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.arguments import needed
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.cmdline import Edits, Line, edited, kernel_part, parse
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import IommuState, judge, read_iommu, read_state
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kernel import FakeKernel, demo_host, intel

GPU = Function(Address.parse("0000:01:00.0"), "10de", "2684", "030000", iommu_group="13")
BARE = Function(Address.parse("0000:00:02.0"), "8086", "3e92", "030000")


def intel_state(**more: object) -> IommuState:
    return IommuState(**{"vendor": "intel", "tables": ("DMAR",), **more})  # type: ignore[arg-type]


ACTIVE = {"instances": ("dmar0",), "groups": 12}


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        (intel_state(**ACTIVE), "IOMMU_OK", "nothing to do"),
        (intel_state(**ACTIVE, arguments=("intel_iommu=on",)), "IOMMU_OK", "superfluous here: intel_iommu=on"),
        (intel_state(arguments=("intel_iommu=off",)), "IOMMU_OFF_BY_ARG", "remove intel_iommu=off"),
        (intel_state(arguments=("iommu=off", "intel_iommu=on")), "IOMMU_OFF_BY_ARG", "remove iommu=off"),
        (intel_state(), "IOMMU_OFF_BY_KERNEL_DEFAULT", "add intel_iommu=on"),
        (intel_state(arguments=("intel_iommu=igfx_off",)), "IOMMU_OFF_BY_KERNEL_DEFAULT", "add intel_iommu=on"),
        (intel_state(arguments=("intel_iommu=igfx_off",), next_arguments=("iommu=pt",)), "IOMMU_OFF_BY_KERNEL_DEFAULT", "add"),
        (intel_state(next_arguments=("intel_iommu=on",)), "IOMMU_OFF_PENDING_REBOOT", "reboot"),
        (intel_state(arguments=("intel_iommu=off",), next_arguments=("quiet",)), "IOMMU_OFF_PENDING_REBOOT", "reboot"),
        (intel_state(arguments=("intel_iommu=off",), next_arguments=("intel_iommu=off", "iommu=pt")), "IOMMU_OFF_BY_ARG", "remove"),
        (intel_state(arguments=("intel_iommu=on",), log=("DMAR: failed to map",)), "IOMMU_INIT_FAILED", "firmware update"),
        (IommuState(vendor="amd", tables=("IVRS",)), "IOMMU_INIT_FAILED", "force_enable"),
        (IommuState(vendor="amd", tables=("IVRS",), arguments=("amd_iommu=off",)), "IOMMU_OFF_BY_ARG", "remove amd_iommu=off"),
        (IommuState(vendor="intel", arguments=("intel_iommu=on",)), "IOMMU_FIRMWARE", "VT-d"),
        (IommuState(vendor="amd"), "IOMMU_FIRMWARE", "AMD-Vi"),
        (IommuState(vendor="intel", virtual=True, arguments=("intel_iommu=on",)), "IOMMU_NESTED", "hypervisor"),
        (intel_state(**ACTIVE, interrupt_remapping=False), "IOMMU_NO_INTR_REMAP", "EPERM"),
    ],
)
def test_each_kind_of_host_has_its_code_and_its_advice(state: IommuState, code: str, said: str) -> None:
    verdict = judge(state, [GPU])
    assert verdict.code == code
    assert said in verdict.advice


def test_only_boot_arguments_are_curable() -> None:
    assert judge(intel_state(arguments=("intel_iommu=off",))).curable
    assert not judge(IommuState(vendor="intel")).curable
    assert not judge(IommuState(vendor="intel")).active


def test_an_uncovered_device_is_named() -> None:
    verdict = judge(intel_state(**ACTIVE), [GPU, BARE])
    assert (verdict.code, verdict.subjects, verdict.active) == ("IOMMU_NO_GROUP_FOR_DEVICE", ("0000:00:02.0",), True)
    assert "igfx_off" in verdict.advice


def test_a_changed_layout_is_told() -> None:
    verdict = judge(intel_state(**ACTIVE), [GPU], {"0000:01:00.0": "7"})
    assert verdict.code == "GROUPS_CHANGED"
    assert "0000:01:00.0 was in group 7, is in 13" in verdict.evidence


LINES = (
    "quiet",
    "intel_iommu=off",
    "intel_iommu=igfx_off",
    "intel_iommu=sm_on",
    "intel_iommu=on",
    "intel_iommu=igfx_off intel_iommu=off iommu=pt",
    "iommu=pt,off intel_iommu=on",
    "amd_iommu=off",
)


@pytest.mark.parametrize("default_on", [None, True, False])
@pytest.mark.parametrize(("vendor", "table"), [("intel", "DMAR"), ("amd", "IVRS")])
@pytest.mark.parametrize("line", LINES)
def test_where_arguments_are_needed_the_verdict_is_curable_before_and_pending_after(
    line: str, vendor: str, table: str, default_on: bool | None
) -> None:
    words = parse(line)
    state = IommuState(vendor, (table,), arguments=texts(words), kernel_default_on=default_on)
    change = needed(state, words, [words])
    before = judge(replace(state, next_arguments=state.arguments))
    assert before.curable == bool(change), before
    if change:
        after = texts(edited(words, Edits(change.remove, change.add)))
        verdict = judge(replace(state, next_arguments=after))
        assert (verdict.code, verdict.curable) == ("IOMMU_OFF_PENDING_REBOOT", True)
        assert len(verdict.evidence) > 1


def texts(line: Line) -> tuple[str, ...]:
    return tuple(word.text for word in kernel_part(line))


def test_advice_names_no_word_that_the_next_boot_has_not() -> None:
    state = intel_state(arguments=("intel_iommu=off", "iommu=off"), next_arguments=("iommu=off",))
    assert "remove iommu=off from" in judge(state).advice
    state = intel_state(arguments=("intel_iommu=off",), next_arguments=("quiet",), kernel_default_on=False)
    assert judge(state).advice == "add intel_iommu=on to the boot loader's arguments and reboot"


def test_the_demo_machine_is_active(tmp_path: Path) -> None:
    assert read_iommu(demo_host(tmp_path).root).code == "IOMMU_OK"


def test_words_for_init_are_none_of_the_kernels(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    intel(host, active=False, arguments="quiet -- intel_iommu=off")
    assert read_iommu(FakeKernel(host).root).code == "IOMMU_OFF_BY_KERNEL_DEFAULT"


def test_an_empty_groups_folder_is_not_an_iommu(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    intel(host, active=False, arguments="intel_iommu=off")
    verdict = read_iommu(FakeKernel(host).root)
    assert verdict.code == "IOMMU_OFF_BY_ARG"
    assert "groups: 0" in verdict.evidence[0]


def test_a_guest_without_table_asks_its_hypervisor(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write("/proc/cpuinfo", "vendor_id\t: AuthenticAMD\nflags\t\t: fpu svm hypervisor\n")
    assert read_iommu(FakeKernel(host).root).code == "IOMMU_NESTED"


@pytest.mark.parametrize(("table", "vendor"), [("DMAR", "intel"), ("IVRS", "amd")])
@pytest.mark.parametrize("cpu", ["GenuineIntel", "AuthenticAMD", "HygonGenuine"])
def test_the_firmwares_table_says_whose_iommu_it_is(tmp_path: Path, cpu: str, table: str, vendor: str) -> None:
    host = FakeHost(tmp_path)
    host.write("/proc/cpuinfo", f"vendor_id\t: {cpu}\n")
    host.write(f"/sys/firmware/acpi/tables/{table}", "")
    assert read_state(host.root).vendor == vendor

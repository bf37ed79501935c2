"""What each kind of host needs on its command line."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.arguments import needed
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.cmdline import Edit, parse
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import IommuState


def host(vendor: str, *tables: str, active: bool = False, virtual: bool = False) -> IommuState:
    return IommuState(vendor=vendor, tables=tables, instances=("dmar0",) if active else (), groups=9 if active else 0, virtual=virtual)


@pytest.mark.parametrize(
    ("state", "line", "add", "remove"),
    [
        (host("intel", "DMAR"), "ro quiet", ("intel_iommu=on",), ()),
        (host("intel", "DMAR"), "ro intel_iommu=off", ("intel_iommu=on",), (Edit("intel_iommu=off"),)),
        (host("intel", "DMAR"), "iommu=off intel_iommu=on", (), (Edit("iommu=off"),)),
        (host("intel", "DMAR"), "intel_iommu=on,off", (), (Edit("intel_iommu=on,off", "intel_iommu=on"),)),
        (host("intel", "DMAR"), "intel_iommu=igfx_off", ("intel_iommu=on",), ()),
        (host("intel", "DMAR"), "ro -- intel_iommu=on", ("intel_iommu=on",), ()),
        (host("intel", "DMAR", active=True), "ro quiet", (), ()),
        (host("intel", "DMAR", active=True), "intel_iommu=off intel_iommu=on", (), ()),
        (host("amd", "IVRS"), "amd_iommu=off iommu=off", (), (Edit("amd_iommu=off"), Edit("iommu=off"))),
        (host("amd", "IVRS", active=True), "ro", (), ()),
        (host("arm", "IORT", active=True), "ro", (), ()),
    ],
)
def test_minimum_set(state: IommuState, line: str, add: tuple[str, ...], remove: tuple[Edit, ...]) -> None:
    change = needed(state, parse(line), [parse(line)])
    assert (change.add, change.remove, change.refused) == (add, remove, "")


@pytest.mark.parametrize(
    ("state", "line", "says"),
    [
        (host("intel"), "intel_iommu=on", "VT-d"),
        (host("amd"), "ro", "AMD-Vi"),
        (host("arm"), "ro", "SMMU"),
        (host("intel", virtual=True), "ro", "hypervisor"),
        (host("intel", "DMAR"), "intel_iommu=on", "firmware update"),
        (host("amd", "IVRS"), "ro", "amd_iommu=force_enable"),
        (host(""), "ro", "firmware"),
    ],
)
def test_says_why_no_argument_helps_and_changes_nothing(state: IommuState, line: str, says: str) -> None:
    change = needed(state, parse(line), [parse(line)])
    assert not change
    assert says in change.refused


def test_a_change_that_waits_for_its_reboot_is_neither_made_again_nor_refused() -> None:
    change = needed(host("intel", "DMAR"), parse("ro intel_iommu=off"), [parse("ro intel_iommu=on")])
    assert not change
    assert not change.refused


def test_a_word_for_the_next_boot_that_would_switch_an_active_iommu_off_goes() -> None:
    state = host("amd", "IVRS", active=True)
    change = needed(state, parse("ro"), [parse("ro amd_iommu=off"), parse("ro intel_iommu=off")])
    assert change.remove == (Edit("amd_iommu=off"),)


def test_one_entry_without_the_word_is_enough_to_add_it() -> None:
    lines = [parse("ro intel_iommu=on"), parse("ro")]
    assert needed(host("intel", "DMAR"), parse("ro"), lines).add == ("intel_iommu=on",)


@pytest.mark.parametrize(
    ("state", "line", "words"),
    [
        (host("amd", "IVRS", active=True), "amd_iommu=on intel_iommu=on amd_iommu=pgtbl_v2", ("amd_iommu=on", "intel_iommu=on")),
        (host("intel", "DMAR", active=True), "intel_iommu=on amd_iommu=fullflush", ("amd_iommu=fullflush",)),
        (host("", active=True), "amd_iommu=on", ("amd_iommu=on",)),
    ],
)
def test_superfluous_words_are_named_and_left(state: IommuState, line: str, words: tuple[str, ...]) -> None:
    change = needed(state, parse(line), [parse(line)])
    assert change.superfluous == words
    assert not change

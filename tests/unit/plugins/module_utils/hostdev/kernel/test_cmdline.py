"""The command line as words: quoting, exact comparison, edits."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.cmdline import (
    LIMIT,
    Edit,
    Edits,
    additions,
    check_length,
    edited,
    has,
    kernel_part,
    of_concern,
    parse,
    spelling,
    switches_off,
    text_of,
    without_off,
    word_of,
)

GRUB = "'\"\\"


@pytest.mark.parametrize(
    ("line", "quotes", "texts"),
    [
        ("quiet  ro\tsplash\n", '"', ["quiet", "ro", "splash"]),
        ('dyndbg="file x.c +p" ro', '"', ["dyndbg=file x.c +p", "ro"]),
        ('"dyndbg=file x.c +p" ro', '"', ["dyndbg=file x.c +p", "ro"]),
        ("a='b c'", '"', ["a='b", "c'"]),
        ("a='b c'", GRUB, ["a=b c"]),
        (r"a=b\ c d", GRUB, ["a=b c", "d"]),
        (r"a='b\c'", GRUB, ["a=b\\c"]),
        ('open="to the end', '"', ["open=to the end"]),
        ("", '"', []),
    ],
)
def test_quoting(line: str, quotes: str, texts: list[str]) -> None:
    assert [word.text for word in parse(line, quotes)] == texts


def test_words_keep_their_spelling() -> None:
    assert text_of(parse('ro  dyndbg="file x +p"   quiet')) == 'ro dyndbg="file x +p" quiet'


@pytest.mark.parametrize(
    ("line", "word", "there"),
    [
        ("intel_iommu=pt", "iommu=pt", False),
        ("iommu=pt", "iommu=pt", True),
        ("vfio_pci.ids=10de:2684", "vfio-pci.ids=10de:2684", True),
        ("iommu=p-t", "iommu=p_t", False),
        ("quiet", "quiet=", False),
        ("xhugepages=4 hugepagesz=1G", "hugepages=4", False),
        ("hugepagesz=2M hugepages=4", "hugepagesz=1G hugepages=4", False),
        ("ro hugepagesz=1G hugepages=4 quiet", "hugepagesz=1G hugepages=4", True),
    ],
)
def test_equality_is_exact_but_for_dashes_in_names(line: str, word: str, there: bool) -> None:
    assert has(parse(line), word) is there


@pytest.mark.parametrize(
    ("text", "off", "left"),
    [
        ("intel_iommu=off", True, ""),
        ("intel-iommu=off", True, ""),
        ("amd_iommu=off", True, ""),
        ("iommu=off", True, ""),
        ("intel_iommu=on,off", True, "intel_iommu=on"),
        ("intel_iommu=off,igfx_off", True, "intel_iommu=igfx_off"),
        ("intel_iommu=on,sm_off", False, ""),
        ("intel_iommu=igfx_off", False, ""),
        ("iommu=pt", False, ""),
        ("nvidia.iommu=off", False, ""),
        ("iommu", False, ""),
    ],
)
def test_words_that_switch_off(text: str, off: bool, left: str) -> None:
    word = parse(text)[0]
    assert switches_off(word) is off
    if off:
        assert without_off(word) == Edit(text, left)


def test_edits_replace_in_place_and_add_at_the_end_once() -> None:
    edits = Edits((Edit("iommu=off"), Edit("intel_iommu=off,sm_on", "intel_iommu=sm_on")), ("intel_iommu=on", "quiet"))
    line = edited(parse("ro iommu=off intel_iommu=off,sm_on quiet iommu=off"), edits)
    assert text_of(line) == "ro intel_iommu=sm_on quiet intel_iommu=on"
    assert edited(line, edits) == line


def test_what_follows_two_dashes_is_for_init() -> None:
    assert text_of(kernel_part(parse("ro quiet -- intel_iommu=on"))) == "ro quiet"


@pytest.mark.parametrize("text", ["", "two words", "a='x'", "a=$(id)", "a=`id`", "a=\n", "--", "=x", "a=b\\"])
def test_refuses_what_is_no_single_safe_word(text: str) -> None:
    with pytest.raises(Refused, match="accept a boot argument"):
        word_of(text)


def test_a_word_with_a_space_is_quoted_for_the_boot_loader() -> None:
    word = word_of('dyndbg="file x +p"')
    assert parse(spelling(word), GRUB)[0].text == word.text == "dyndbg=file x +p"


def test_hugepages_stay_with_their_size() -> None:
    assert additions(["hugepagesz=1G", "hugepages=4", "iommu=pt", "hugepagesz=2M", "hugepages=4", "iommu=pt"]) == (
        "hugepagesz=1G hugepages=4",
        "iommu=pt",
        "hugepagesz=2M hugepages=4",
    )


def test_concern_compares_the_given_keys_in_their_order() -> None:
    keys = ["iommu", "intel_iommu"]
    assert of_concern(parse("BOOT_IMAGE=/x ro quiet intel_iommu=on"), keys) == of_concern(parse("root=/dev/vda intel-iommu=on"), keys)
    assert of_concern(parse("iommu=pt iommu=nopt"), keys) != of_concern(parse("iommu=nopt iommu=pt"), keys)


def test_a_line_longer_than_the_kernel_takes_is_refused() -> None:
    check_length([parse("x" * (LIMIT - 1))])
    with pytest.raises(Refused, match="2049 bytes"):
        check_length([parse("x" * LIMIT)])

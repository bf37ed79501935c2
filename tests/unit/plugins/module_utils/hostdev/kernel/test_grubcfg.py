"""What a grub.cfg says about the next boot."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.cmdline import text_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.grubcfg import default_of, entries_of
from ansible_collections.vfio.passthrough.tests.fakes.grub import DISK, KERNELS, menu

ADVANCED = "Advanced options for Debian GNU/Linux"


def test_every_entry_with_its_kind() -> None:
    found = entries_of(menu("console=tty0", "quiet"))
    assert [(entry.kind, entry.title.rpartition(">")[2]) for entry in found] == [
        ("normal", "Debian GNU/Linux"),
        ("normal", f"Debian GNU/Linux, with Linux {KERNELS[0]}"),
        ("recovery", f"Debian GNU/Linux, with Linux {KERNELS[0]} (recovery mode)"),
        ("normal", f"Debian GNU/Linux, with Linux {KERNELS[1]}"),
        ("recovery", f"Debian GNU/Linux, with Linux {KERNELS[1]} (recovery mode)"),
        ("other", "Memory test (memtest86+x64.bin)"),
        ("other", "Fedora Linux 40 (on /dev/sdb2)"),
    ]


def test_words_without_grubs_variables() -> None:
    first = entries_of(menu("console=tty0", "quiet"))[0]
    assert text_of(first.line) == f"root=UUID={DISK} ro console=tty0 quiet"
    assert first.kernel == f"/boot/vmlinuz-{KERNELS[0]}"


def test_a_hand_made_menu_has_no_sections() -> None:
    text = "set default=0\nmenuentry 'Debian' {\n\tsearch --set=root x\n\tlinux /boot/vmlinuz-6 root=/dev/vda \\\n ro\n}\n"
    (entry,) = entries_of(text)
    assert (entry.kind, text_of(entry.line)) == ("normal", "root=/dev/vda ro")


@pytest.mark.parametrize(
    ("chosen", "environment", "title"),
    [
        ("0", {}, "Debian GNU/Linux"),
        ("1>2", {}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[1]}"),
        ("1", {}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[0]}"),
        (f"gnulinux-advanced-{DISK}>gnulinux-{KERNELS[1]}-advanced-{DISK}", {}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[1]}"),
        (f"gnulinux-{KERNELS[1]}-advanced-{DISK}", {}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[1]}"),
        (f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[0]}", {}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[0]}"),
        ("${saved_entry}", {"saved_entry": "1>2"}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[1]}"),
        ("${saved_entry}", {}, "Debian GNU/Linux"),
        ("0", {"next_entry": "1>0"}, f"{ADVANCED}>Debian GNU/Linux, with Linux {KERNELS[0]}"),
        ("3", {}, "Fedora Linux 40 (on /dev/sdb2)"),
    ],
)
def test_default(chosen: str, environment: dict[str, str], title: str) -> None:
    text = menu("", "quiet", chosen)
    default = default_of(text, environment, entries_of(text))
    assert default is not None
    assert default.title == title


def test_a_default_that_is_not_there_is_not_guessed() -> None:
    text = menu("", "quiet", "Windows")
    assert default_of(text, {}, entries_of(text)) is None

"""The bare-metal probe guest: compiled once, started by QEMU's -kernel or libvirt's <kernel>."""

from __future__ import annotations

from pathlib import Path

from ..harness.cache import cached
from . import debian

HERE = Path(__file__).resolve().parent
FLAGS = (
    *("-m32", "-march=i686", "-O1", "-Wall", "-Werror", "-ffreestanding", "-fno-pic", "-fno-pie", "-mno-sse"),
    *("-fno-stack-protector", "-fcf-protection=none", "-nostdlib", "-static", "-no-pie"),
    *("-Wl,--build-id=none", "-Wl,--no-warn-rwx-segments"),
)


def probe_elf() -> Path:
    """Return the probe guest, a 32-bit multiboot ELF of some kilobytes; probe.c says what it prints."""
    return cached("probe", [HERE / "probe.c", HERE / "probe.ld", *FLAGS], _build, "1 s") / "probe.elf"


def _build(place: Path) -> None:
    source, script = HERE / "probe.c", HERE / "probe.ld"
    debian.run(["gcc", *FLAGS, f"-Wl,-T,{script}", "-o", str(place / "probe.elf"), str(source)])

"""How much address space a PCI function's regions take, from its file `resource` in sysfs."""

from __future__ import annotations

from collections.abc import Iterable

_MEMORY = 0x200  # IORESOURCE_MEM, include/linux/ioport.h
# low bits of a BAR: memory, 64 bit wide, prefetchable (PCI_BASE_ADDRESS_*)
_WIDE_PREFETCHABLE = 0xC


def prefetchable_bytes(lines: Iterable[str]) -> int:
    """Return the bytes of all 64-bit prefetchable memory regions; a line is start, end (inclusive) and flags, hexadecimal."""
    total = 0
    for line in lines:
        start, end, flags = (int(part, 16) for part in line.split())
        if flags & _MEMORY and flags & 0xF == _WIDE_PREFETCHABLE:
            total += end - start + 1
    return total

"""PCI addresses as the kernel spells them: DDDD:BB:SS.F, hexadecimal, the domain four digits or more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Optional

from .faults import Refused

_FORM = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True, order=True)
class Address:
    """One PCI function's place: numbers, so that they sort as the bus does (10000:00:02.0 after 0000:81:00.0).

    Domains above ffff exist (Intel VMD); slots are 0 to 1f, functions 0 to 7 (include/uapi/linux/pci.h).
    """

    domain: int
    bus: int
    slot: int
    function: int

    @staticmethod
    @lru_cache(maxsize=8192)
    def parse(text: str) -> Address:
        """Return the address that text spells, in either case; Refused for anything else, white space included."""
        found = _FORM.fullmatch(text)
        fields = [int(part, 16) for part in found.groups()] if found else []
        if not fields or fields[2] > 0x1F:
            raise Refused(
                what="read a PCI address",
                subject=repr(text),
                cause="not of the form DDDD:BB:SS.F (hexadecimal, slot at most 1f, function at most 7)",
                hint="write it as lspci -D prints it, for example 0000:65:00.0",
            )
        return Address(*fields)

    @staticmethod
    def find(text: str) -> Optional[Address]:
        """Return the address that text spells, None for anything else."""
        try:
            return Address.parse(text)
        except Refused:
            return None

    def __str__(self) -> str:
        """Return the kernel's spelling, lower case."""
        return self._text

    # an address is spelled far more often than it is made
    @cached_property
    def _text(self) -> str:
        return f"{self.slot_text}.{self.function}"

    @cached_property
    def slot_text(self) -> str:
        """Return the address without its function, which all functions of one card share."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}"

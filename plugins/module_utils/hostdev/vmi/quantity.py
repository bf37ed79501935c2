"""Kubernetes quantities ("256Mi", "1500m", "2e3"), exactly: never through a float."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from ..device.faults import Refused

# apimachinery/pkg/api/resource: binary and decimal suffixes; "e3" and "E3" are exponents, a bare E is exa
_POWERS: dict[str, Fraction] = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)},
}
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|([A-Za-z]{0,2}))")


@dataclass(frozen=True)
class Quantity:
    """An amount: the text as written and its exact value (bytes for memory, CPUs for cpu)."""

    text: str
    value: Fraction

    @staticmethod
    def parse(text: str) -> Quantity:
        """Return the quantity that text spells; Refused for anything that Kubernetes would refuse, white space included."""
        found = _FORM.fullmatch(text)
        number, exponent, suffix = found.groups() if found else ("", None, "?")
        if exponent is not None:
            return Quantity(text, Fraction(number) * Fraction(10) ** int(exponent))
        if suffix not in _POWERS:
            raise Refused(
                what="read a quantity",
                subject=repr(text),
                cause="not a number with one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent",
                hint="for example 256Mi or 500m",
            )
        return Quantity(text, Fraction(number.rstrip(".")) * _POWERS[suffix])

    @staticmethod
    def of(amount: int) -> Quantity:
        """Return the quantity of a whole number."""
        return Quantity(str(amount), Fraction(amount))

    def ceil(self) -> int:
        """Return the value as a whole number, rounded up as Kubernetes' Quantity.Value() does."""
        return math.ceil(self.value)

    def __str__(self) -> str:
        """Return the text as it was written."""
        return self.text

"""Quantities are exact, and what Kubernetes refuses is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.quantity import Quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("256Mi", Fraction(256 * 1024**2)),
        ("1Gi", Fraction(1024**3)),
        ("1.5Ki", Fraction(1536)),
        ("1k", Fraction(1000)),
        ("2M", Fraction(2 * 10**6)),
        ("500m", Fraction(1, 2)),
        ("100n", Fraction(1, 10**7)),
        ("5u", Fraction(5, 10**6)),
        ("1e3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        ("2E2", Fraction(200)),
        ("1e-3", Fraction(1, 1000)),
        ("7.", Fraction(7)),
        (".5", Fraction(1, 2)),
        ("+3", Fraction(3)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_value(text: str, value: Fraction) -> None:
    assert Quantity.parse(text).value == value
    assert str(Quantity.parse(text)) == text


@pytest.mark.parametrize("text", ["", "Mi", "1 Gi", "1gi", "1KI", "1K", "0x10", "1e", "1Zi", " 1", "1\n", "1e3Mi", "--1"])
def test_refused(text: str) -> None:
    with pytest.raises(Refused):
        Quantity.parse(text)


@pytest.mark.parametrize(("text", "whole"), [("500m", 1), ("1001m", 2), ("2", 2), ("1.5Ki", 1536), ("-500m", 0)])
def test_rounds_up(text: str, whole: int) -> None:
    assert Quantity.parse(text).ceil() == whole

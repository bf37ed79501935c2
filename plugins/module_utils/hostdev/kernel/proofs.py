"""Whether an offer still holds: the few facts that it rests on, looked at again."""

from __future__ import annotations

import os
from typing import Callable

from ..device.offer import LINE, LINK, NAMES, Offer
from ..root import Root, read_text


def disproved(root: Root, offer: Offer) -> str:
    """Return which fact of an offer does not hold any more, its nodes included, as text; empty when all do."""
    difference = changed(root, offer)
    if difference:
        return difference
    gone = next((node for node in offer.present if not os.path.exists(root.prefix + node)), "")
    return f"{gone} does not exist any more" if gone else ""


def changed(root: Root, offer: Offer) -> str:
    """Return which proof of an offer does not hold any more, as text; empty when all do."""
    for path, expected, form in offer.proofs:
        difference = _FORMS[form](root.prefix + path, expected)
        if difference:
            return f"{path} {difference} when the unit was listed"
    return ""


def _link(place: str, expected: str) -> str:
    try:
        found = os.readlink(place).rpartition("/")[2]
    except OSError:
        found = ""
    return "" if found == expected else f"is {found or 'none'}, it was {expected or 'none'}"


def _line(place: str, expected: str) -> str:
    text = read_text(place)
    return "" if text is not None and expected in text.splitlines() else f"has no line {expected}, it had one"


def _names(place: str, expected: str) -> str:
    try:
        found = " ".join(sorted(os.listdir(place)))
    except OSError:
        found = ""
    return "" if found == expected else f"holds {found or 'nothing'}, it held {expected or 'nothing'}"


_FORMS: dict[str, Callable[[str, str], str]] = {LINK: _link, LINE: _line, NAMES: _names}

"""XML elements by lxml, in the order and with the attributes that the caller gives: equal input, equal text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional, Union

from ..device.faults import Refused, Unsupported

try:
    from lxml import etree
except ImportError:
    etree = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

Value = Union[str, int, None]


def element(tag: str, attributes: Optional[Mapping[str, Value]] = None, *children: Optional[Element], text: Value = None) -> Element:
    """Return an element; attributes of None and children of None are left out.

    Unsupported where lxml is missing, Refused for a value that no XML can hold (a NUL, most other control characters).
    """
    if etree is None:
        raise Unsupported(what="build XML", subject="the Python library lxml", cause="it is not installed", hint="install python3-lxml")
    made = etree.Element(tag)
    for key, value in (attributes or {}).items():
        if value is not None:
            _put(value, f"attribute {key} of <{tag}>", partial(made.set, key))
    made.extend([child for child in children if child is not None])
    if text is not None:
        _put(text, f"text of <{tag}>", partial(setattr, made, "text"))
    return made


def _put(value: Union[str, int], where: str, put: Callable[[str], None]) -> None:
    try:
        put(str(value))
    except ValueError as error:
        hint = "take the control characters out of the manifest's value"
        raise Refused(what="write the domain", subject=f"{where}, {value!r}", cause=str(error), hint=hint) from error


def to_text(root: Element) -> str:
    """Return the element as indented text that ends in a newline."""
    return str(etree.tostring(root, pretty_print=True, encoding="unicode"))


def from_text(xml: str) -> Element:
    """Return the element of a text of ours."""
    return etree.fromstring(xml.encode())

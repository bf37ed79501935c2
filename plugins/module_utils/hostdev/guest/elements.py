"""XML elements by lxml, in the order and with the attributes that the caller gives: equal input, equal text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional, Union

from ..device.faults import Unsupported

try:
    from lxml import etree
except ImportError:
    etree = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

Value = Union[str, int, None]


def element(tag: str, attributes: Optional[Mapping[str, Value]] = None, *children: Optional[Element], text: Value = None) -> Element:
    """Return an element; attributes of None and children of None are left out. Unsupported where lxml is missing."""
    if etree is None:
        raise Unsupported(what="build XML", subject="the Python library lxml", cause="it is not installed", hint="install python3-lxml")
    made = etree.Element(tag)
    for key, value in (attributes or {}).items():
        if value is not None:
            made.set(key, str(value))
    made.extend([child for child in children if child is not None])
    if text is not None:
        made.text = str(text)
    return made


def to_text(root: Element) -> str:
    """Return the element as indented text that ends in a newline."""
    return str(etree.tostring(root, pretty_print=True, encoding="unicode"))


def from_text(xml: str) -> Element:
    """Return the element of a text of ours."""
    return etree.fromstring(xml.encode())

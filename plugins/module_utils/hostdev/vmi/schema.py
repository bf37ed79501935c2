"""A strict reader and writer of documents, driven by the rows that a dataclass's fields carry.

A field made by `row` says its key in the document, what kind of value it takes and whether it has to be there.
Nothing is guessed: an unknown key, a value of another type, a missing required key is a problem with its full path.
All problems of a document are collected, so that the user mends it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as described  # pylint takes a call of "field" in a function for a mistake
from typing import Any, Callable, Dict, List, Tuple

from ..device.faults import Fault, Refused
from .quantity import Quantity

Problems = Iterator[Tuple[str, str]]
"""What a check yields: (path, cause) of each thing that is wrong."""


class Reading:
    """One reading of a document: collects (path, cause) of everything that is wrong."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def wrong(self, path: str, cause: str) -> None:
        """Note a problem."""
        self.problems.append((path, cause))

    def finish(self, what: str, hint: str) -> None:
        """Raise Refused when there was a problem; several stand in one message, each with its path."""
        if not self.problems:
            return
        if len(self.problems) == 1:
            subject, cause = self.problems[0]
        else:
            subject = f"{len(self.problems)} fields"
            cause = "; ".join(f"{path}: {text}" for path, text in self.problems)
        raise Refused(what=what, subject=subject, cause=cause, hint=hint)


@dataclass(frozen=True)
class Kind:
    """How a value is read from a document (value, path, reading) and written back."""

    read: Callable[[Any, str, Reading], Any]
    write: Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """One field of a document: its key, its kind, and whether it has to be there."""

    key: str
    kind: Kind
    required: bool


def row(key: str, kind: Kind, default: Any = None, *, required: bool = False, make: Callable[[], Any] | None = None) -> Any:
    """Return a dataclass field for a key; `make` gives the default of a mutable value, a required one has none."""
    options: Dict[str, Any] = {"metadata": {"row": Row(key, kind, required)}}
    if make is not None:
        options["default_factory"] = make
    elif not required:
        options["default"] = default
    return described(**options)


def join(path: str, key: object) -> str:
    """Return the path of a key below path."""
    return f"{path}.{key}" if path else str(key)


def _rows(cls: type) -> dict[str, tuple[str, Row]]:
    return {item.metadata["row"].key: (item.name, item.metadata["row"]) for item in fields(cls)}


def _unknown(cls: type, key: str, known: Sequence[str]) -> str:
    unserved: Mapping[str, str] = getattr(cls, "unserved", {})
    if key in unserved:
        return unserved[key]
    import difflib  # for the refusal only

    near = difflib.get_close_matches(key, known, 1)
    return f"unknown field; nearest known: {near[0]}" if near else f"unknown field; known: {', '.join(sorted(known))}"


def read_object(cls: type, value: Any, path: str, reading: Reading) -> Any:
    """Return an instance of cls from a mapping, or None when something below is wrong; null counts as absent, as for Kubernetes."""
    if not isinstance(value, Mapping):
        reading.wrong(path, f"has to be a mapping, is {_said(value)}")
        return None
    rows, before = _rows(cls), len(reading.problems)
    for key in value:
        if key not in rows:
            reading.wrong(join(path, key), _unknown(cls, str(key), list(rows)))
    found: Dict[str, Any] = {}
    for key, (attribute, line) in rows.items():
        if value.get(key) is not None:
            found[attribute] = line.kind.read(value[key], join(path, key), reading)
        elif line.required:
            reading.wrong(join(path, key), "required, and absent")
    return cls(**found) if len(reading.problems) == before else None


def write_object(instance: Any) -> dict[str, Any]:
    """Return the mapping of an instance; what equals its default is left out, as Go's omitempty does."""
    written: Dict[str, Any] = {}
    for item in fields(instance):
        value, line = getattr(instance, item.name), item.metadata["row"]
        if line.required or value not in (item.default, None, (), {}):
            written[line.key] = line.kind.write(value)
    return written


def _said(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", type(None): "null"}
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"{names.get(type(value), type(value).__name__)} ({value!r})"


def _scalar(kind: type, name: str) -> Kind:
    def read(value: Any, path: str, reading: Reading) -> Any:
        # bool is an int for Python, never for a document
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            reading.wrong(path, f"has to be {name}, is {_said(value)}")
            return None
        return value

    return Kind(read, lambda value: value)


TEXT = _scalar(str, "text")
BOOLEAN = _scalar(bool, "true or false")
INTEGER = _scalar(int, "a whole number")


def at_least(least: int, most: int | None = None) -> Kind:
    """Return the kind of whole numbers from `least` on, up to `most` where that is given."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        number = INTEGER.read(value, path, reading)
        if number is not None and (number < least or (most is not None and number > most)):
            reading.wrong(path, f"has to be {least} {'or more' if most is None else f'to {most}'}, is {number}")
        return number

    return Kind(read, lambda value: value)


def one_of(*choices: str) -> Kind:
    """Return the kind of texts that are one of the choices."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        text = TEXT.read(value, path, reading)
        if text is not None and text not in choices:
            reading.wrong(path, f"has to be one of {', '.join(choices)}, is {text!r}")
        return text

    return Kind(read, lambda value: value)


def checked(check: Callable[[str], object]) -> Kind:
    """Return the kind of texts that `check` lets pass; its Fault's cause becomes the problem."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        text = TEXT.read(value, path, reading)
        try:
            if text is not None:
                check(text)
        except Fault as fault:
            reading.wrong(path, f"{text!r}: {fault.cause}")
        return text

    return Kind(read, lambda value: value)


def nested(cls: type) -> Kind:
    """Return the kind of objects that cls describes."""
    return Kind(lambda value, path, reading: read_object(cls, value, path, reading), write_object)


def many(kind: Kind) -> Kind:
    """Return the kind of lists of a kind; read as a tuple."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if not isinstance(value, (list, tuple)):
            reading.wrong(path, f"has to be a list, is {_said(value)}")
            return ()
        return tuple(kind.read(item, f"{path}[{index}]", reading) for index, item in enumerate(value))

    return Kind(read, lambda value: [kind.write(item) for item in value])


def _read_quantity(value: Any, path: str, reading: Reading) -> Any:
    # YAML reads 1073741824 and 0.5 as numbers; their shortest text is what the user wrote
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        reading.wrong(path, f"has to be a quantity such as 256Mi, is {_said(value)}")
        return None
    try:
        return Quantity.parse(str(value))
    except Refused as refused:
        reading.wrong(path, f"{refused.subject}: {refused.cause}")
        return None


def _read_texts(value: Any, path: str, reading: Reading) -> Any:
    if not isinstance(value, Mapping):
        reading.wrong(path, f"has to be a mapping of texts, is {_said(value)}")
        return {}
    return {str(key): TEXT.read(item, f"{path}[{key}]", reading) for key, item in value.items()}


def _read_opaque(value: Any, path: str, reading: Reading) -> Any:
    if not isinstance(value, Mapping):
        reading.wrong(path, f"has to be a mapping, is {_said(value)}")
        return {}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items: List[Any] = [_plain(item) for item in value]
        return items
    return value


QUANTITY = Kind(_read_quantity, str)
TEXTS = Kind(_read_texts, dict)
OPAQUE = Kind(_read_opaque, _plain)
"""A part of the document that goes to the pod as it stands; the API server checks it there."""

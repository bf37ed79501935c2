"""The node's record of what the machine was before us: written before the first change, removed last.

One JSON file. Unknown keys, also those of later versions, survive a rewrite.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Optional

from ..device.faults import Fault, Unsupported
from ..root import Root, read_text, remove_file, write_file

PLACE = "/var/lib/vfio-passthrough/record.json"
VERSION = 1
_OWN = ("version", "functions", "arguments")


@dataclass(frozen=True)
class Former:
    """What one function was before us. pre_bound: it was on vfio-pci already, by somebody else's doing."""

    id: str
    driver: str = ""
    override: str = ""
    pre_bound: bool = False
    serial: str = ""
    resource: str = ""
    group: str = ""
    part: str = ""
    modalias: str = ""

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Former:
        """Return the value of a map of the file; what is missing keeps its default, what is unknown is passed over."""
        texts = ("id", "driver", "override", "serial", "resource", "group", "part", "modalias")
        return Former(pre_bound=bool(raw.get("pre_bound", False)), **{key: str(raw.get(key) or "") for key in texts})


@dataclass(frozen=True)
class Record:
    """functions: by address. arguments: what the boot-arguments half keeps here, None when nothing. rest: keys of others."""

    functions: Mapping[str, Former] = field(default_factory=dict)
    arguments: Optional[Mapping[str, Any]] = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of ours is left on the machine as far as the record knows."""
        return not self.functions and self.arguments is None and not self.rest

    def known(self) -> dict[str, dict[str, str]]:
        """Return what selectors may ask for: by address the id, the native driver and the serial."""
        mine = {address: one for address, one in self.functions.items() if not one.pre_bound}
        return {address: {"id": one.id, "driver": one.driver, "serial": one.serial} for address, one in mine.items()}


def read_record(root: Root) -> Record:
    """Return the record, an empty one when there is none; Fault when the file is not readable as one."""
    place = root.at(PLACE)
    text = read_text(place)
    if text is None:
        return Record()
    try:
        raw = json.loads(text)
        functions = {address: Former.of(value) for address, value in raw.get("functions", {}).items()}
    except (ValueError, AttributeError) as error:
        raise Fault(
            what="read the record of the former state",
            subject=str(place),
            cause=f"not our JSON: {error}",
            hint="restore it from a backup; if there is none, note the drivers that the devices should have, move it away and run again",
        ) from error
    return Record(functions, raw.get("arguments"), {key: value for key, value in raw.items() if key not in _OWN})


def write_record(root: Root, record: Record) -> None:
    """Write the record, synced to the disk before this returns; an empty one removes the file.

    Unsupported when the file was written by a later version: its meaning is not ours to change.
    """
    place = root.at(PLACE)
    text = read_text(place)
    later = json.loads(text).get("version", VERSION) if text else VERSION
    if later > VERSION:
        raise Unsupported(
            what="change the record of the former state",
            subject=str(place),
            cause=f"written by version {later} of its form, this is version {VERSION}",
            hint="use the newer collection on this node",
        )
    if record.is_empty:
        remove_file(place)
        with suppress(OSError):
            # others of ours may still keep files there
            place.parent.rmdir()
        return
    functions = {address: vars(one) for address, one in sorted(record.functions.items())}
    document = {**record.rest, "version": VERSION, "functions": functions, "arguments": record.arguments}
    write_file(place, json.dumps(document, indent=2, sort_keys=True) + "\n", 0o600)

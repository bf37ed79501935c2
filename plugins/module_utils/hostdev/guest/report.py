"""What the outside learns of a launch: lines for the pod's log, the ready file, the status file and the termination message."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, TextIO

from ..device.faults import Fault
from .workplace import Workplace

TERMINATION = "/dev/termination-log"
_LONGEST_MESSAGE = 3000  # the kubelet keeps 4096 bytes of the whole file


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    state: Succeeded or Failed, as the pod's phase will be. reason: one word. message: a sentence. code: exit code.
    """

    state: str
    reason: str
    message: str
    code: int

    @classmethod
    def of_fault(cls, fault: Fault) -> Outcome:
        """Return the outcome of a launch that a fault ended."""
        return cls("Failed", type(fault).__name__, fault.text(), 1)

    @classmethod
    def of_error(cls, error: Exception) -> Outcome:
        """Return the outcome of a launch that an error of our own ended."""
        return cls("Failed", type(error).__name__, f"an error of the launcher itself: {error}", 1)


@dataclass(frozen=True)
class Reporter:
    """Writes the reports of one launch; a report that cannot be written never ends a guest."""

    place: Workplace
    termination: Path = Path(TERMINATION)
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def say(self, line: str) -> None:
        """Write one line to the pod's log (stderr; stdout belongs to the guest)."""
        self.stream.write(f"hostdev launch: {line}\n")
        self.stream.flush()

    def state(self, state: str, **facts: Any) -> None:
        """Record the state (Starting, Running, Stopping) with facts about the domain; the ready file exists while it is Running."""
        _replace(self.place.status, json.dumps({"state": state, **facts}) + "\n")
        if state == "Running":
            _replace(self.place.ready, "")
        else:
            _remove(self.place.ready)

    def end(self, outcome: Outcome) -> int:
        """Record the outcome in all places and return the exit code."""
        facts = {"state": outcome.state, "reason": outcome.reason, "message": _cut(outcome.message)}
        self.say(f"{outcome.state}: {outcome.reason}: {outcome.message}")
        self.state(**facts)
        self._terminate(json.dumps(facts))
        return outcome.code

    def _terminate(self, text: str) -> None:
        # the kubelet made this file and mounted it: written in place, and only where it is
        try:
            handle = os.open(self.termination, os.O_WRONLY | os.O_TRUNC)
        except OSError:
            return
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)


def device_facts(devices: Sequence[tuple[str, str]]) -> list[Dict[str, str]]:
    """Return (name, host address) pairs as they stand in the status file."""
    return [{"name": name, "address": address} for name, address in devices]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."


def _replace(path: Path, text: str) -> None:
    # not synced: nobody needs these files after a power cut
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return

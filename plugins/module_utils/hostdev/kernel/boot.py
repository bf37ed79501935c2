"""What every boot loader tells and takes: the values and the interface behind which each is one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..root import Root
from .cmdline import Edits, Line
from .grubcfg import Entry


@dataclass(frozen=True)
class Boot:
    """What a boot loader was observed to do.

    running: the line this kernel was started with. entries: what the menu holds for the next boot. default: the entry that is next.
    future, foreign: what a kernel installed later gets, as (every entry's part, normal entries' part); foreign leaves our edits out.
    own: the edits that our file makes, None when there is no such file.
    """

    loader: str
    running: Line
    entries: tuple[Entry, ...] = ()
    default: Entry | None = None
    future: tuple[Line, Line] = ((), ())
    foreign: tuple[Line, Line] = ((), ())
    own: Edits | None = None

    @property
    def normal(self) -> tuple[Entry, ...]:
        """The entries that have to carry the arguments."""
        return tuple(entry for entry in self.entries if entry.kind == "normal")

    @property
    def generated(self) -> tuple[Entry, ...]:
        """The entries that are made from the settings: normal and recovery ones."""
        return tuple(entry for entry in self.entries if entry.kind != "other")


class Loader(Protocol):
    """One row of the table of boot loaders. Its files are ours alone, so undo is deletion."""

    @property
    def name(self) -> str:
        """What the module's result calls it."""

    @property
    def settings(self) -> str:
        """The path of our own file."""

    def recognise(self, root: Root) -> bool:
        """Say whether this loader starts this machine."""

    def observe(self, root: Root) -> Boot:
        """Read what it does now and will do; changes nothing."""

    def text(self, edits: Edits) -> str:
        """Return what our settings file would hold."""

    def write(self, root: Root, edits: Edits | None) -> None:
        """Make the edits, and no others of ours, hold from the next boot on; None undoes."""

    def remains(self, root: Root) -> tuple[str, ...]:
        """Return the folders that do not exist yet and that undo has to delete with our file."""

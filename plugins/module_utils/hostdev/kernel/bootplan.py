"""Plan boot arguments: from what was observed and what is wished to the edits of our file and the menu that follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..device.faults import Refused, Unsupported
from .arguments import CONCERN, Change, needed
from .boot import Boot
from .cmdline import Edit, Edits, Line, additions, check_length, edited, find, has, kernel_part, parse, switches_off, without_off, word_of
from .grubcfg import QUOTES, Entry
from .iommu import IommuState

# keys whose words are answered to by the IOMMU drivers: who asks for one of them wants no IOMMU switched off
DRIVERS = ("intel_iommu", "amd_iommu")
AUTO = "auto"


@dataclass(frozen=True)
class Wish:
    """What the user asks for. arguments: words, and AUTO for what the machine needs; remove: words; absent: undo everything."""

    arguments: tuple[str, ...] = (AUTO,)
    remove: tuple[str, ...] = ()
    absent: bool = False


@dataclass(frozen=True)
class Plan:
    """What will be done. edits: what our file will say, None for no file; due: whether anything has to be written or generated.

    entries: the menu's entries with the lines that they will have.
    """

    edits: Edits | None
    due: bool
    entries: tuple[Entry, ...]
    superfluous: tuple[str, ...] = ()


def plan(boot: Boot, state: IommuState, wish: Wish, *, recorded: bool = False) -> Plan:
    """Return the plan; Unsupported when no argument would switch the IOMMU on, Refused when the wish contradicts itself. Pure.

    recorded: a record of ours is there, so an undo was not finished.
    """
    change = needed(state, boot.running, _lines(boot)) if AUTO in wish.arguments and not wish.absent else Change()
    if change.refused:
        raise Unsupported(what="switch the IOMMU on by boot arguments", subject="this machine", cause=change.refused)
    edits = None if wish.absent else (_edits(boot, wish, change) or None)
    entries = tuple(_predict(boot, entry, edits or Edits()) for entry in boot.entries)
    check_length([entry.line for entry in entries])
    lines = boot.generated or (Entry("", "normal", "", boot.running),)
    unmet = any(not meets(entry, edits or Edits()) for entry in lines)
    # a loader that shows no menu has no file of ours either: only the line counts
    due = unmet or (bool(boot.entries) and (edits != boot.own or (recorded and edits is None)))
    return Plan(edits, due, entries, change.superfluous)


def _lines(boot: Boot) -> list[Line]:
    """Return the lines that a next boot may have; what is running stands for them where they are not known."""
    if not boot.generated:
        return [boot.running]
    # a recovery entry lacks the normal entries' words by intent: only what is taken out concerns it
    return [*(entry.line for entry in boot.normal), (*boot.future[0], *boot.future[1])]


def _edits(boot: Boot, wish: Wish, change: Change) -> Edits:
    own = boot.own or Edits()
    auto = AUTO in wish.arguments
    asked = additions(word for word in wish.arguments if word != AUTO)
    unwanted = _unwanted(wish, asked)
    # a recovery entry spells its own words: what is taken out of the normal ones is taken out of it as well
    words = [word for line in (*_lines(boot), *(entry.line for entry in boot.generated)) for word in line]
    switching = bool(change.remove) or any(word.key in DRIVERS for text in asked for word in parse(text))
    swaps = {edit.old: edit for edit in own.replace if _is_kept(edit, unwanted, auto)}
    swaps.update({word.raw: without_off(word) for word in words if switching and switches_off(word)})
    swaps.update({word.raw: Edit(word.raw) for word in words if word.normal in unwanted})
    before = tuple(text for text in own.add if auto and parse(text)[0].key in CONCERN)
    return Edits(tuple(swaps.values()), tuple(dict.fromkeys((*before, *change.add, *asked))))


def _unwanted(wish: Wish, asked: Sequence[str]) -> frozenset[str]:
    """Return the normal forms of what is to go; Refused when one of them is asked for as well."""
    unwanted = frozenset(word_of(text).normal for text in wish.remove)
    for text in asked:
        if unwanted & {word.normal for word in parse(text)}:
            raise Refused(
                what="plan boot arguments",
                subject=text,
                cause="it is both to be there and to be removed",
                hint="take it out of one of the two lists",
            )
    return unwanted


def _is_kept(edit: Edit, unwanted: Iterable[str], auto: bool) -> bool:
    word = parse(edit.old, QUOTES)[0]
    return word.normal in unwanted or (auto and switches_off(word))


def meets(entry: Entry, edits: Edits) -> bool:
    """Say whether an entry is as the edits want it; a recovery entry needs only to be without what is taken out."""
    raws = {word.raw for word in entry.line}
    if any(edit.old in raws for edit in edits.replace):
        return False
    return entry.kind != "normal" or all(has(kernel_part(entry.line), text) for text in edits.add)


def _predict(boot: Boot, entry: Entry, edits: Edits) -> Entry:
    """Return the entry as the generator will write it: the settings' part swapped for the new one, the rest as it is."""
    if entry.kind == "other":
        return entry
    normal = entry.kind == "normal"
    every, more = (edited(part, edits, adding=False) for part in boot.foreign)
    new = edited((*every, *more), edits) if normal else every
    old = (*boot.future[0], *boot.future[1]) if normal else boot.future[0]
    at = find(entry.line, old)
    if not old or at < 0:
        return replace(entry, line=edited(entry.line, edits, adding=normal))
    line = (*entry.line[:at], *new, *entry.line[at + len(old) :])
    return replace(entry, line=line)

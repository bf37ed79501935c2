"""Bring the boot arguments to what is wished: observe, plan, apply, read back; record before the first change, undo."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..device.faults import Fault
from ..root import Root
from .arguments import CONCERN
from .boot import Boot, Loader
from .bootloader import Unmanaged
from .bootplan import AUTO, Plan, Wish, meets, plan
from .cmdline import Edits, Line, has, of_concern, parse, text_of
from .grubcfg import QUOTES, Entry
from .iommu import IommuState
from .record import read_record, write_record


@dataclass(frozen=True)
class Former:
    """What was before our first change, kept in the node's record under `arguments`. lines: by menu entry; folders: made by us."""

    loader: str
    running: str
    lines: dict[str, str]
    folders: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it for a JSON file."""
        return {"loader": self.loader, "running": self.running, "lines": dict(self.lines), "folders": list(self.folders)}


def apply(root: Root, loader: Loader, boot: Boot, todo: Plan) -> Boot:
    """Carry a plan out and return what is read back; what was before is put back when the result is not as planned."""
    record = read_record(root)
    first = record.arguments is None
    if first:
        write_record(root, replace(record, arguments=former(root, loader, boot).as_dict()))
    try:
        loader.write(root, todo.edits)
        after = loader.observe(root)
        _verify(after, todo, boot.own or Edits())
    except Fault:
        with suppress(Fault):
            loader.write(root, boot.own)
        if first:
            _forget(root)
        raise
    if todo.edits is None:
        _forget(root)
    return after


def former(root: Root, loader: Loader, boot: Boot) -> Former:
    """Return what has to be recorded before the first change."""
    lines = {entry.title: text_of(entry.line) for entry in boot.entries}
    return Former(loader.name, text_of(boot.running), lines, loader.remains(root))


def _verify(after: Boot, todo: Plan, before: Edits) -> None:
    wrong = [entry for entry in after.generated if not meets(entry, todo.edits or Edits())]
    gone = [
        text for text in before.add if text not in (todo.edits or Edits()).add and not has((*after.foreign[0], *after.foreign[1]), text)
    ]
    wrong += [entry for entry in after.normal if any(has(entry.line, text) for text in gone)]
    if wrong or not after.normal:
        found = f"{wrong[0].title}: {text_of(wrong[0].line)}" if wrong else "no Linux entry at all"
        raise Fault(
            what="change the boot arguments",
            subject=f"boot loader {after.loader}",
            cause=f"the menu was generated, yet it holds {found}",
            hint="something sets the line after our file; the former settings were put back",
        )


def _forget(root: Root) -> None:
    """Delete the folders that were made for our file, then what the record says of the arguments: the last thing that undo does."""
    record = read_record(root)
    for folder in (record.arguments or {}).get("folders", []):
        with suppress(OSError):
            root.at(folder).rmdir()
    write_record(root, replace(record, arguments=None))


def ensure(root: Root, loader: Loader, state: IommuState, wish: Wish, *, check: bool = False) -> dict[str, Any]:
    """Bring the machine to the wish, or only say what would change (check); returns the kernel_args module's result."""
    boot = loader.observe(root)
    todo = plan(boot, state, wish, recorded=read_record(root).arguments is not None)
    if todo.due and isinstance(loader, Unmanaged):
        raise loader.refusal(todo.edits or Edits())
    after = boot.entries
    if todo.due:
        after = todo.entries if check else apply(root, loader, boot, todo).entries
    diff = _diff(boot, loader, todo, after) if todo.due else []
    return {"changed": todo.due, "diff": diff, **_result(boot, todo, wish, after)}


def _result(boot: Boot, todo: Plan, wish: Wish, after: Sequence[Entry]) -> dict[str, Any]:
    was, new = _next(boot, boot.entries), _next(boot, after)
    keys = {word.key for text in _touched(boot, todo, wish) for word in parse(text, QUOTES)} | set(CONCERN)
    reboot = bool(new) and of_concern(new, keys) != of_concern(boot.running, keys)
    return {
        "reboot_required": reboot,
        "boot_loader": boot.loader,
        "running": text_of(boot.running),
        "next_boot": text_of(new),
        "added": _missing(new, was),
        "removed": _missing(was, new),
        "superfluous": list(todo.superfluous),
    }


def _missing(line: Line, other: Line) -> list[str]:
    known = {word.normal for word in other}
    return [word.text for word in line if word.normal not in known]


def _touched(boot: Boot, todo: Plan, wish: Wish) -> list[str]:
    edits = [boot.own or Edits(), todo.edits or Edits()]
    words = [text for one in edits for text in (*one.add, *(edit.old for edit in one.replace))]
    return [*words, *(text for text in (*wish.arguments, *wish.remove) if text != AUTO)]


def _next(boot: Boot, entries: Sequence[Entry]) -> Line:
    """Return the line of the entry that boots next; the first normal one's where the menu does not tell which it is."""
    names = boot.default.names if boot.default else ()
    chosen = [entry for entry in entries if names and entry.names == names]
    return next(iter([entry.line for entry in (*chosen, *entries) if entry in chosen or entry.kind == "normal"]), ())


def _diff(boot: Boot, loader: Loader, todo: Plan, after: Sequence[Entry]) -> list[dict[str, str]]:
    def menu(entries: Sequence[Entry]) -> str:
        return "".join(f"{entry.title}: {text_of(entry.line)}\n" for entry in entries)

    texts = [loader.text(edits) if edits is not None else "" for edits in (boot.own, todo.edits)]
    pairs = [(loader.settings, *texts), ("next boot", menu(boot.entries), menu(after))]
    return [{"before_header": name, "after_header": name, "before": old, "after": new} for name, old, new in pairs if old != new]

"""What a grub.cfg says about the next boot: every Linux entry, its words, and which entry is the default. Pure.

Sources: GRUB manual ("Commands", "default"); util/grub.d/00_header.in and 10_linux.in for what Debian's generator writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .cmdline import Line, Word, parse

QUOTES = "'\"\\"
_LINUX = ("linux", "linux16", "linuxefi")
_BEGIN = re.compile(r"### BEGIN \S*?([^/\s]+) ###")
_DEFAULT = re.compile(r"set default=(\"[^\"]*\"|'[^']*'|\S+)")


@dataclass(frozen=True)
class Entry:
    """One menu entry that starts a Linux.

    kind: "normal", "recovery", or "other" (another system's, a memory test, the administrator's own: not generated from settings).
    names: what a default may call it by: its index ("1>0"), id, title, each with those of its submenus.
    """

    title: str
    kind: str
    kernel: str
    line: Line
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Block:
    word: str
    title: str
    ident: str
    index: int


def entries_of(text: str) -> tuple[Entry, ...]:
    """Return the Linux entries of a grub.cfg in menu order; variables of GRUB on the line (Ubuntu's $vt_handoff) are left out."""
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[Entry]:
    section, stack, counts = "", [], [0]
    for line in text.replace("\\\n", " ").splitlines():
        begin = _BEGIN.match(line)
        section = begin[1] if begin else section
        words = parse(line, QUOTES)
        first = words[0].text if words else ""
        if first in ("menuentry", "submenu") and line.rstrip().endswith("{"):
            stack.append(_Block(first, *_names(words), counts[-1]))
            counts[-1] += 1
            counts.append(0)
        elif line.rstrip().endswith("{"):
            stack.append(_Block("", "", "", 0))
            counts.append(0)
        elif first == "}" and stack:
            stack.pop()
            counts.pop()
        elif first in _LINUX and len(words) > 1 and stack:
            yield _entry(section, [block for block in stack if block.word], words[1:])


def _names(words: Line) -> tuple[str, str]:
    """Return title and id of a menuentry or submenu line."""
    texts = [word.text for word in words]
    marks = [at for at, text in enumerate(texts) if text in ("$menuentry_id_option", "--id")]
    return texts[1] if len(texts) > 1 else "", texts[marks[0] + 1] if marks and marks[0] + 1 < len(texts) else ""


def _entry(section: str, blocks: Sequence[_Block], words: Line) -> Entry:
    kernel, line = words[0].text, tuple(word for word in words[1:] if not word.raw.startswith("$"))
    paths = (
        ">".join(str(block.index) for block in blocks),
        ">".join(block.ident for block in blocks),
        ">".join(block.title for block in blocks),
        # GRUB also takes an id without those of its submenus
        blocks[-1].ident if blocks else "",
    )
    title = ">".join(block.title for block in blocks)
    ident = blocks[-1].ident if blocks else ""
    return Entry(title, _kind(section, title, ident, kernel, line), kernel, line, tuple(dict.fromkeys(filter(None, paths))))


def _kind(section: str, title: str, ident: str, kernel: str, line: Sequence[Word]) -> str:
    if section and not section.startswith("10_linux"):
        return "other"
    if not kernel.rpartition("/")[2].startswith(("vmlinuz", "vmlinux", "bzImage", "Image")):
        return "other"
    marks = {word.text for word in line} & {"single", "recovery"}
    return "recovery" if "-recovery-" in ident or "(recovery mode)" in title or marks else "normal"


def default_of(text: str, environment: Mapping[str, str], entries: Sequence[Entry]) -> Entry | None:
    """Return the entry that the next boot takes, or None when the file does not tell.

    environment: grubenv's variables. A set next_entry (grub-reboot) goes before the default.
    """
    said = [match[1].strip("'\"") for match in _DEFAULT.finditer(text)]
    plain = [value for value in said if value != "${next_entry}"]
    wanted = plain[-1] if plain else "0"
    if wanted == "${saved_entry}":
        wanted = environment.get("saved_entry") or "0"
    if "${next_entry}" in said:
        wanted = environment.get("next_entry") or wanted
    wanted = re.sub(r"\s*>\s*", ">", wanted)
    found = [entry for entry in entries if wanted in entry.names]
    # an index that names a submenu starts the submenu's first entry
    return next(iter(found or [entry for entry in entries if any(name.startswith(f"{wanted}>") for name in entry.names)]), None)

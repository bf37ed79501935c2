"""The kernel's command line as an ordered list of words: parsing, exact comparison, and edits. No I/O.

Quoting: the kernel knows double quotes only (lib/cmdline.c next_arg); GRUB's own files know ', " and \\ (GRUB manual, "Quoting").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..device.faults import Refused

# COMMAND_LINE_SIZE of x86 and arm64, its closing zero included
LIMIT = 2048
OFF_KEYS = ("iommu", "intel_iommu", "amd_iommu")
# what a boot loader or the kernel puts in or rewrites by itself
_NOT_OURS = ("BOOT_IMAGE", "initrd", "vt.handoff")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@dataclass(frozen=True)
class Word:
    """One word: `raw` as it is spelt in its file, `text` without the quoting."""

    raw: str
    text: str

    @property
    def key(self) -> str:
        """The parameter's name; '-' and '_' are equal in it (kernel/params.c parameq)."""
        return self.text.partition("=")[0].replace("-", "_")

    @property
    def value(self) -> str | None:
        """What follows the first '=', or None for a bare word."""
        _key, mark, value = self.text.partition("=")
        return value if mark else None

    @property
    def normal(self) -> str:
        """The form by which words are compared: the whole word, name normalised."""
        return self.key if self.value is None else f"{self.key}={self.value}"

    @property
    def options(self) -> list[str]:
        """The value as a comma list."""
        return self.value.split(",") if self.value else []


Line = tuple[Word, ...]


@dataclass(frozen=True)
class Edit:
    """A word's spelling and what takes its place; empty `new` means that it goes."""

    old: str
    new: str = ""


@dataclass(frozen=True)
class Edits:
    """What is done to a command line: words replaced or removed by their exact spelling, then words added at the end."""

    replace: tuple[Edit, ...] = ()
    add: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.replace or self.add)


def parse(text: str, quotes: str = '"') -> Line:
    r"""Return the words of a line; quotes: the characters that quote (`"` for the kernel, `'"\` for a boot loader's file).

    An open quote ends with the line, as it does for the kernel.
    """
    words: list[Word] = []
    raw, plain, quote, escaped = "", "", "", False
    for char in text:
        if not quote and not escaped and char.isspace():
            words += [Word(raw, plain)] if raw else []
            raw, plain = "", ""
            continue
        raw += char
        if escaped:
            plain, escaped = plain + char, False
        elif char == "\\" and "\\" in quotes and quote != "'":
            escaped = True
        elif char == quote:
            quote = ""
        elif not quote and char in quotes:
            quote = char
        else:
            plain += char
    return tuple([*words, Word(raw, plain)] if raw else words)


def kernel_part(line: Line) -> Line:
    """Return the words that the kernel reads: those before a bare `--`, which hands the rest to init."""
    texts = [word.text for word in line]
    return line[: texts.index("--")] if "--" in texts else line


def text_of(line: Iterable[Word]) -> str:
    """Return the line as text, each word as it is spelt."""
    return " ".join(word.raw for word in line)


def find(line: Sequence[Word], wanted: Sequence[Word]) -> int:
    """Return where the wanted words stand side by side in a line, compared by their normal form; -1 when they do not."""
    normal, run = [word.normal for word in line], [word.normal for word in wanted]
    return next((at for at in range(len(normal) - len(run) + 1) if normal[at : at + len(run)] == run), -1)


def has(line: Sequence[Word], wanted: str) -> bool:
    """Say whether a line holds exactly this word, or run of words: iommu=pt is not in intel_iommu=pt."""
    return find(line, parse(wanted)) >= 0


def word_of(text: str) -> Word:
    """Return a user's text as one word; Refused when it is none, several, or cannot stand on a command line."""
    words = parse(text)
    cause = "" if len(words) == 1 else f"it is {len(words)} words where one is needed"
    if not cause and (words[0].text in ("", "--") or words[0].text.startswith("=")):
        cause = "it names no kernel parameter"
    if not cause and any(char in text for char in "\0\n\r'$`\\"):
        cause = 'a quote other than ", a dollar sign, a backslash or a control character cannot be given to the kernel safely'
    if cause:
        raise Refused(what="accept a boot argument", subject=repr(text), cause=cause, hint="give one word each, like intel_iommu=on")
    return words[0]


def spelling(word: Word) -> str:
    """Return the word as a boot loader's file needs it: quoted when it holds a space."""
    return word.text if _PLAIN.fullmatch(word.text) else f'"{word.text}"'


def switches_off(word: Word) -> bool:
    """Say whether the word switches an IOMMU off: the option `off` by itself, alone or in a comma list; igfx_off is another."""
    return word.key in OFF_KEYS and "off" in word.options


def without_off(word: Word) -> Edit:
    """Return the edit that takes the option `off` out of a word and leaves the others of its list."""
    rest = [option for option in word.options if option != "off"]
    return Edit(word.raw, spelling(Word("", f"{word.text.partition('=')[0]}={','.join(rest)}")) if rest else "")


def edited(line: Line, edits: Edits, *, adding: bool = True) -> Line:
    """Return the line after the edits; what is there already is not added again."""
    swaps = {edit.old: edit.new for edit in edits.replace}
    words: list[Word] = []
    for word in line:
        words += parse(swaps[word.raw]) if word.raw in swaps else (word,)
    for raw in edits.add if adding else ():
        words += () if has(words, raw) else parse(raw)
    return tuple(words)


def additions(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the user's words as a boot loader's file needs them; hugepages= stays with the hugepagesz= before it.

    The kernel gives hugepages= to the size before it (mm/hugetlb.c), so the pair is one addition. Refused as word_of.
    """
    found: list[str] = []
    for word in map(word_of, arguments):
        pair = word.key == "hugepages" and found and word_of(found[-1].split()[-1]).key == "hugepagesz"
        found.append(f"{found.pop()} {spelling(word)}" if pair else spelling(word))
    return tuple(dict.fromkeys(found))


def of_concern(line: Line, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the normalised words of the given keys in their order: what two lines are compared by."""
    wanted = frozenset(keys)
    return tuple(word.normal for word in kernel_part(line) if word.key in wanted and word.key not in _NOT_OURS)


def check_length(lines: Sequence[Line]) -> None:
    """Raise Refused when a line would not fit in the kernel's buffer, which would cut it silently."""
    for line in lines:
        size = len(text_of(line).encode()) + 1
        if size > LIMIT:
            raise Refused(
                what="add boot arguments",
                subject=f"{text_of(line)[:80]}...",
                cause=f"the line would be {size} bytes, the kernel takes {LIMIT}",
                hint="remove arguments that are no longer needed",
            )

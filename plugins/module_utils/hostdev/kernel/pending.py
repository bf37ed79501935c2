"""What waits for the next boot: words of its command line, functions that it binds, unbinds that hung in this one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from ..root import Root, read_text
from .arguments import CONCERN
from .boot import Boot
from .boot_files import RULES
from .bootloader import next_line, read_boot
from .cmdline import Edits, Line, of_concern, parse
from .grubcfg import QUOTES
from .safety import hung_now

_ADDRESS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")


@dataclass(frozen=True)
class NextBoot:
    """words: of the next boot's command line, None when it cannot be told. changes: how our words in it differ from this boot's,
    as texts. binds: addresses that our boot-time rule binds. hung: addresses whose unbind did not return in this boot.
    """

    words: Optional[tuple[str, ...]] = None
    changes: tuple[str, ...] = ()
    binds: frozenset[str] = frozenset()
    hung: frozenset[str] = frozenset()

    def awaited_by(self, address: str) -> tuple[str, ...]:
        """Return why this function is bound only by the next boot; none when no reboot is what it lacks."""
        bound = ("the next boot binds it to vfio-pci",) if address in self.binds else ()
        if address in self.hung:
            return ("its unbind did not return in this boot", *bound)
        return (*self.changes, *bound) if bound and self.changes else ()


def read_next_boot(root: Root) -> NextBoot:
    """Return what waits for the next boot on this machine; reads only."""
    boot = read_boot(root)
    line = next_line(boot)
    changes = _changes(boot, line) if boot and line is not None else ()
    binds = frozenset(_ADDRESS.findall(read_text(root.at(RULES)) or ""))
    return NextBoot(None if line is None else tuple(word.text for word in line), changes, binds, hung_now(root))


def _changes(boot: Boot, line: Line) -> tuple[str, ...]:
    """Words that are not of our making may differ for ever: boot loaders and images rewrite some of theirs."""
    own = boot.own or Edits()
    texts = [text for edit in own.replace for text in (edit.old, edit.new)] + list(own.add)
    keys = {word.key for text in texts for word in parse(text, QUOTES)} | set(CONCERN)
    running, following = of_concern(boot.running, keys), of_concern(line, keys)
    gone = [f"the next boot has no {word}" for word in running if word not in following]
    return tuple(gone + [f"the next boot has {word}" for word in following if word not in running])

"""The chain of one declared device: what each of the three places knows of it, as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

KERNEL, KUBERNETES, GUEST = "kernel", "Kubernetes", "guest"
OK, PENDING, BROKEN, WAITING, ABSENT = "ok", "pending reboot", "broken", "waiting", "absent"


@dataclass(frozen=True)
class Link:
    """What one place knows.

    state: ok, pending reboot (the next boot mends it), broken, waiting (an earlier link is not ok), or absent (this node has no
    such device and need not have it).
    evidence: what was read, and where it stands. hint: the mend, empty when there is nothing to mend.
    """

    place: str
    state: str
    evidence: str
    hint: str = ""


@dataclass(frozen=True)
class Chain:
    """One declared device, or an entry that means none; links in the order kernel, Kubernetes, guest."""

    resource: str
    device: str
    links: tuple[Link, ...]

    @property
    def first_broken(self) -> Optional[Link]:
        """Return the first link that is not ok; the later ones only follow from it."""
        return next((link for link in self.links if link.state != OK), None)

    @property
    def arrived(self) -> bool:
        """Return whether every place knows the device."""
        return self.first_broken is None

    def as_dict(self) -> dict[str, Any]:
        """Return the chain for JSON output."""
        links = [{"place": one.place, "state": one.state, "evidence": one.evidence, "hint": one.hint} for one in self.links]
        return {"resource": self.resource, "device": self.device, "arrived": self.arrived, "links": links}


def chain_of(resource: str, device: str, links: Iterable[Link]) -> Chain:
    """Return a chain in which every link behind the first that is not ok waits for it."""
    made: list[Link] = []
    for link in links:
        before = next((one for one in made if one.state != OK), None)
        made.append(Link(link.place, WAITING, f"waits for the {before.place}") if before else link)
    return Chain(resource, device, tuple(made))


def table(chains: Sequence[Chain]) -> list[str]:
    """Return the chains as lines of a table, the mend of each first broken link below its row."""
    rows = [("DEVICE", "RESOURCE", "PLACE", "STATE", "EVIDENCE")]
    for chain in chains:
        for i, link in enumerate(chain.links):
            first = (chain.device, chain.resource) if i == 0 else ("", "")
            rows.append((*first, link.place, link.state, link.evidence))
            if link is chain.first_broken and link.hint:
                rows.append(("", "", "", "", f"-> {link.hint}"))
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines whose cells stand below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def report(chains: Sequence[Chain]) -> dict[str, Any]:
    """Return everything for JSON: {"arrived": number, "pending": [text], "broken": [text], "chains": [...], "table": [line]}.

    pending: devices that arrive with the next reboot; broken: those that need a mend. What is absent stands only in the table.
    """
    told: dict[str, list[str]] = {PENDING: [], BROKEN: []}
    for chain in chains:
        link = chain.first_broken
        if link is not None and link.state in told:
            mend = f" -> {link.hint}" if link.hint else ""
            told[link.state].append(f"{chain.device} ({chain.resource}): {link.place} {link.state}: {link.evidence}{mend}")
    return {
        "arrived": sum(chain.arrived for chain in chains),
        "pending": told[PENDING],
        "broken": told[BROKEN],
        "chains": [one.as_dict() for one in chains],
        "table": table(chains),
    }

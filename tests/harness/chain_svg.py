"""The picture of the chain: one row per device, one box per place, drawn from what `hostdev explain --format json` said."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

WIDTH, MARGIN, GAP, LINE = 960, 20, 40, 16
BOX = (WIDTH - 2 * MARGIN - 2 * GAP) // 3
CHARACTERS = 36
COLOURS = {"ok": "#1a7f37", "pending reboot": "#9a6700", "broken": "#cf222e", "waiting": "#6e7781"}
PLACES = {"kernel": "host kernel", "Kubernetes": "Kubernetes", "guest": "guest"}
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


def text(x: int, y: int, words: str, *, size: int = 12, colour: str = "#1f2328", bold: bool = False) -> str:
    """Return one line of text."""
    weight = " font-weight='bold'" if bold else ""
    return f"<text x='{x}' y='{y}' {FONT} font-size='{size}' fill='{colour}'{weight}>{escape(words)}</text>"


def lines_of(link: Mapping[str, Any]) -> list[str]:
    """Return evidence and mend as lines that fit a box."""
    told = textwrap.wrap(link["evidence"], CHARACTERS)
    return told + (textwrap.wrap(f"-> {link['hint']}", CHARACTERS) if link["hint"] else [])


def box(x: int, y: int, height: int, link: Mapping[str, Any]) -> Iterator[str]:
    """Yield the box of one place."""
    colour = COLOURS[link["state"]]
    yield f"<rect x='{x}' y='{y}' width='{BOX}' height='{height}' rx='6' fill='#ffffff' stroke='{colour}' stroke-width='2'/>"
    yield text(x + 12, y + 22, PLACES[link["place"]], size=14, bold=True)
    yield f"<text x='{x + BOX - 12}' y='{y + 22}' {FONT} font-size='12' fill='{colour}' text-anchor='end'>{escape(link['state'])}</text>"
    for number, line in enumerate(lines_of(link)):
        yield text(x + 12, y + 44 + number * LINE, line)


def arrow(x: int, y: int, colour: str) -> str:
    """Return the arrow from one box to the next."""
    end = x + GAP - 4
    return f"<path d='M{x + 4} {y} H{end} m-7 -5 l7 5 l-7 5' fill='none' stroke='{colour}' stroke-width='2'/>"


def row(y: int, chain: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the row of one device, and where the next begins."""
    links: Sequence[Mapping[str, Any]] = chain["links"]
    height = 56 + LINE * max(len(lines_of(link)) for link in links)
    made = [text(MARGIN, y + 14, f"{chain['device']}  {chain['resource']}", size=13, bold=True)]
    top = y + 26
    for number, link in enumerate(links):
        x = MARGIN + number * (BOX + GAP)
        made += box(x, top, height, link)
        if number + 1 < len(links):
            made.append(arrow(x + BOX, top + height // 2, COLOURS[link["state"]]))
    return made, top + height + 24


def draw(report: Mapping[str, Any]) -> str:
    """Return the picture as SVG."""
    made: list[str] = []
    y = MARGIN
    for chain in report["chains"]:
        parts, y = row(y, chain)
        made += parts
    title = "One device through host kernel, Kubernetes and guest, as hostdev explain tells it"
    size = f"width='{WIDTH}' height='{y}' viewBox='0 0 {WIDTH} {y}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label={quoteattr(title)}>"
    ground = f"<rect width='{WIDTH}' height='{y}' fill='#f6f8fa'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *made, "</svg>"]) + "\n"

"""Tests that a page names are there."""

from __future__ import annotations

import re

import pytest
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

PAGES = sorted(page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md") if "`test_" in page.read_text(encoding="utf-8"))
TESTS = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_some_page_names_tests() -> None:
    assert PAGES
    assert TESTS


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_each_named_test_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text(encoding="utf-8")))
    assert named - TESTS == set()

"""The linters and the type checker, each one check."""

from __future__ import annotations

from .work import ROOT, VENV_BIN, Tally, check

# without caches: mypy's forgets modules of packages that have no __init__.py
TOOLS: dict[str, list[str]] = {
    "ruff-check": ["ruff", "check", "--no-cache", "."],
    "ruff-format": ["ruff", "format", "--no-cache", "--check", "."],
    "mypy": ["mypy", "--cache-dir", "/dev/null"],
    "yamllint": ["yamllint", "--strict", "."],
    "ansible-lint": ["ansible-lint", "--offline", "--strict", "-q"],
}


def run() -> Tally:
    """Run every tool, also after one of them failed."""
    total = Tally()
    for name, command in TOOLS.items():
        total += check(name, [str(VENV_BIN / command[0]), *command[1:]], cwd=ROOT)
    return total

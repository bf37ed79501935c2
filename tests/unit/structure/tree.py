"""The source files of the collection, parsed once, as the structure tests look at them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
UTILS = "plugins/module_utils"
RUNTIME = f"{UTILS}/hostdev"
LONG_NAME = "ansible_collections.vfio.passthrough"


@dataclass(frozen=True)
class Source:
    """A Python file: its path below the root of the repository, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Return the syntax tree, read by the running interpreter's grammar."""
        return parse(self.text)

    @property
    def module(self) -> str:
        """Return the dotted name below the collection; a package is named without __init__."""
        name = self.path[: -len(".py")].replace("/", ".")
        return name.removesuffix(".__init__")

    @property
    def package(self) -> str:
        """Return the dotted name of the package that relative imports count from."""
        return self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]

    @property
    def wing(self) -> str:
        """Return the part of the runtime that the file belongs to ("device", "root", "cli"), "" outside it."""
        if not self.path.startswith(f"{RUNTIME}/"):
            return ""
        first = self.path[len(RUNTIME) + 1 :].split("/")[0]
        return first.removesuffix(".py")


@cache
def parse(text: str) -> ast.Module:
    """Return the syntax tree of a text, made once."""
    return ast.parse(text)


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """Return the Python files below a folder of the repository; none where it does not exist."""
    # ansible-test keeps whole virtual environments below tests/output
    output = ROOT / "tests/output"
    every = (path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)
    found = sorted(path for path in every if output not in path.parents)
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in found)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file, nested ones too."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def where(source: Source, node: ast.AST, text: str) -> str:
    """Return a complaint that points at its line."""
    return f"{source.path}:{getattr(node, 'lineno', 1)}: {text}"

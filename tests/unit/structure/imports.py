"""Who imports whom, read from the syntax trees: imports inside functions count, since they are bundled as well."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.vfio.passthrough.tests.unit.structure.tree import LONG_NAME, Source, where

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

RUNTIME = "plugins.module_utils.hostdev"
# a wing, and the wings that it may import beside itself
LAYERS: Mapping[str, frozenset[str]] = {
    "__init__": frozenset(),
    "device": frozenset(),
    "vmi": frozenset({"device"}),
    "root": frozenset({"device"}),
    "kernel": frozenset({"device", "vmi", "root"}),
    "kube": frozenset({"device", "vmi", "root", "kernel"}),
    "guest": frozenset({"device", "vmi", "root"}),
    "explain": frozenset({"device", "vmi", "root", "kernel", "kube", "guest"}),
    "cli": frozenset({"device", "vmi", "root", "kernel", "kube", "guest", "explain"}),
}
# a third-party package, and the wings that may name it
THIRD_PARTY: Mapping[str, frozenset[str]] = {
    "grpc": frozenset({"kube"}),
    "google": frozenset({"kube"}),
    "kubernetes": frozenset({"kube"}),
    "lxml": frozenset({"guest"}),
    "libvirt": frozenset({"guest"}),
    "prometheus_client": frozenset({"kube"}),
    "pyudev": frozenset({"kernel", "kube"}),
    "inotify": frozenset({"kernel", "kube"}),
    "yaml": frozenset({"cli", "vmi"}),
}
NO_IO = frozenset({"device", "vmi"})
IO_MODULES = frozenset({"asyncio", "fcntl", "io", "multiprocessing", "os", "shutil", "signal", "socket", "subprocess", "tempfile"})


def in_standard_library(name: str) -> bool:
    """Tell whether a top-level name belongs to the standard library; Python 3.9 has no list of it, so look where it lies."""
    listed = getattr(sys, "stdlib_module_names", None)
    if listed is not None:
        return name in listed
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return name == "__main__"
    origin = (spec.origin or "") if spec else "no such module"
    return origin in {"built-in", "frozen"} or (origin.startswith(sysconfig.get_path("stdlib")) and "-packages" not in origin)


@dataclass(frozen=True)
class Import:
    """One imported name: the module in full ("plugins.module_utils.hostdev.device.faults" for our own)."""

    name: str
    node: ast.AST
    relative: bool
    guarded: bool
    top_level: bool

    @property
    def first(self) -> str:
        """Return the top-level package."""
        return self.name.partition(".")[0]


def catches_import_error(node: ast.Try) -> bool:
    """Tell whether a try statement answers ImportError."""
    names = [handler.type for handler in node.handlers if handler.type is not None]
    return any(isinstance(name, ast.Name) and name.id in {"ImportError", "ModuleNotFoundError"} for name in names)


def is_guard(node: ast.AST) -> TypeGuard[ast.Try | ast.If]:
    """Tell whether the statement's body may name a library: it answers ImportError, or only the type checker reads it."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Try) and catches_import_error(node)


def imports(source: Source) -> Iterator[Import]:
    """Yield every import of a file; `from . import x` is the module x."""
    guarded = {id(child) for node in ast.walk(source.tree) if is_guard(node) for part in node.body for child in ast.walk(part)}
    inner = {id(child) for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS) for child in ast.walk(node)}
    for node in ast.walk(source.tree):
        for name, relative in names_of(source, node):
            yield Import(name, node, relative, id(node) in guarded, id(node) not in inner)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def names_of(source: Source, node: ast.AST) -> list[tuple[str, bool]]:
    """Return the names that an import statement imports, and whether it is relative; nothing for other nodes."""
    if isinstance(node, ast.Import):
        return [(shorten(alias.name), False) for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = shorten(node.module or "")
    if node.level:
        parts = source.package.split(".")
        above = parts[: len(parts) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    return [(f"{base}.{alias.name}", node.level > 0) for alias in node.names]


def shorten(name: str) -> str:
    """Return our own modules' names below the collection, others as they are."""
    return name[len(LONG_NAME) + 1 :] if name.startswith(f"{LONG_NAME}.") else name


def wing_of(name: str) -> str:
    """Return the wing of the runtime that a module name belongs to; "" outside it."""
    return name[len(RUNTIME) + 1 :].split(".", maxsplit=1)[0] if name.startswith(f"{RUNTIME}.") else ""


def direction_faults(source: Source) -> list[str]:
    """Return where a runtime file imports against the direction, or by another than a relative import."""
    faults = []
    for item in imports(source):
        target = wing_of(item.name)
        if item.first in {"ansible", "ansible_collections"} or (item.first == "plugins" and not target):
            faults.append(where(source, item.node, f"the runtime imports {item.name}"))
        elif item.first == "plugins" and not item.relative:
            faults.append(where(source, item.node, f"{item.name} is spelled by its full name; the runtime has two"))
        elif target in LAYERS and target not in LAYERS.get(source.wing, frozenset()) | {source.wing, "__init__"}:
            faults.append(where(source, item.node, f"{source.wing} must not import {target}"))
    return faults


def third_party_faults(source: Source) -> list[str]:
    """Return where a runtime file names a library in the wrong wing, unguarded, or one that is not on the list."""
    faults = []
    for item in imports(source):
        if item.first in {"plugins", "__future__"} or in_standard_library(item.first):
            continue
        if source.wing not in THIRD_PARTY.get(item.first, frozenset()):
            faults.append(where(source, item.node, f"{source.wing} must not import {item.first}"))
        elif not item.guarded:
            faults.append(where(source, item.node, f"import {item.first} is not guarded by except ImportError"))
    return faults


def io_faults(source: Source) -> list[str]:
    """Return where a wing without input and output reaches for it."""
    if source.wing not in NO_IO:
        return []
    faults = [
        where(source, item.node, f"{source.wing} does no I/O but imports {item.first}")
        for item in imports(source)
        if item.first in IO_MODULES
    ]
    opened = (
        node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    )
    return faults + [where(source, node, f"{source.wing} does no I/O but opens a file") for node in opened]


def base_faults(source: Source) -> list[str]:
    """Return the module-level classes that derive from a guarded library's name."""
    names = {alias.asname or alias.name.partition(".")[0] for node in ast.walk(source.tree) for alias in guarded_aliases(node)}
    faults = []
    for node in source.tree.body:
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            root = base
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                faults.append(where(source, node, f"class {getattr(node, 'name', '')} derives from {root.id}, which may be None"))
    return faults


def guarded_aliases(node: ast.AST) -> Iterator[ast.alias]:
    """Yield what a try statement imports under the guard of ImportError."""
    if isinstance(node, ast.Try) and catches_import_error(node):
        for statement in node.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                yield from statement.names


def closure(start: Source, known: Mapping[str, Source]) -> set[str]:
    """Return the modules that travel with a file: everything it imports, and what that imports, packages included."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in expand(item.name for item in imports(waiting.pop())):
            if name in known and name not in reached:
                reached.add(name)
                waiting.append(known[name])
    return reached


def expand(names: Iterable[str]) -> Iterator[str]:
    """Yield each name and its parents: a.b.c, a.b, a."""
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(len(parts), 0, -1))

"""What a file of ours may look like: sizes, names, docstrings, grammar, calls that are left to one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.vfio.passthrough.tests.unit.structure.tree import RUNTIME, Source, functions, where

MOST_LINES = 400
MOST_FUNCTION_LINES = 60
OLDEST = (3, 9)
FILE_NAME = re.compile(r"[a-z][a-z0-9_]*\.py")
FORBIDDEN_CALLS = {"print", "exit", "quit", "breakpoint", "eval", "exec"}
PROCESSES = {"subprocess", "pty", "multiprocessing"}
OS_PROCESSES = re.compile(r"system|popen|spawn\w*|posix_spawnp?|exec[lv]\w*|fork\w*")
MAY_START_PROCESSES = f"{RUNTIME}/root.py"
LEFT_OVER = re.compile(rf"\b(?:{'|'.join(word.upper() for word in ('todo', 'fixme', 'xxx', 'hack'))})\b")
# sanity wants AnsibleModule.run_command, which the node agent and the launcher do not have; nothing else is switched off
SWITCHED_OFF = re.compile(r".*\b(?:subprocess\.(?:run|Popen)|os\.posix_spawn)\(  # pylint: disable=ansible-bad-function")
MACHINE = re.compile(r"/(?:sys|proc|dev)(?:/|$)")
READERS = {"open", "Path", "PosixPath", "listdir", "scandir", "readlink", "stat", "lstat", "exists", "isfile", "isdir", "islink"}


def size_faults(source: Source) -> list[str]:
    """Return what is over the ceilings; a module's documentation does not count, being text."""
    lines = source.text.count("\n")
    if "/modules/" in source.path:
        texts = (node for node in ast.walk(source.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        lines -= sum(node.end_lineno - node.lineno for node in texts if node.end_lineno)
    faults = [f"{source.path}: {lines} lines, over {MOST_LINES}"] if lines > MOST_LINES else []
    for node in functions(source):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MOST_FUNCTION_LINES:
            faults.append(where(source, node, f"{node.name} has {length} lines, over {MOST_FUNCTION_LINES}"))
    return faults


def grammar_faults(source: Source) -> list[str]:
    """Return why the file does not parse as Python 3.9, or that it lacks the annotations import."""
    try:
        tree = ast.parse(source.text, feature_version=OLDEST)
    except SyntaxError as error:
        return [f"{source.path}:{error.lineno}: not Python 3.9: {error.msg}"]
    has_code = any(not isinstance(node, ast.Expr) for node in tree.body)
    futures = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__" for alias in node.names}
    faults = (
        []
        if "annotations" in futures or source.path.endswith("__init__.py") or not has_code
        else [f"{source.path}: lacks `from __future__ import annotations`"]
    )
    return faults + [where(source, node, text) for node, text in newer_library(tree)]


def newer_library(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield what Python 3.9's library does not take: zip(strict=), dataclass(slots=, kw_only=), pairs of types by `|`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            words = {word.arg for word in node.keywords}
            if node.func.id == "zip" and "strict" in words:
                yield node, "zip(strict=) is newer than Python 3.9"
            if node.func.id == "dataclass" and words & {"slots", "kw_only", "match_args"}:
                yield node, "dataclass(slots=, kw_only=) is newer than Python 3.9"
            if node.func.id == "isinstance" and len(node.args) == 2 and isinstance(node.args[1], ast.BinOp):
                yield node, "isinstance(x, A | B) is newer than Python 3.9"


def forbidden_faults(source: Source) -> list[str]:
    """Return print, exits, assertions, bare excepts and the name `_` in the runtime: sanity refuses them in module code."""
    faults = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert):
            faults.append(where(source, node, "assert"))
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            faults.append(where(source, node, "bare except"))
        elif isinstance(node, ast.Name) and node.id == "_":
            faults.append(where(source, node, "the name _"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            faults.append(where(source, node, f"{node.func.id}()"))
        elif is_attribute(node, "sys", "exit"):
            faults.append(where(source, node, "sys.exit"))
    return faults


def is_attribute(node: ast.AST, base: str, name: str) -> bool:
    """Tell whether the node is BASE.NAME."""
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name) and node.value.id == base


def process_faults(source: Source) -> list[str]:
    """Return where a file but root.py starts a process."""
    if source.path == MAY_START_PROCESSES:
        return []
    faults = []
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.name.partition(".")[0] for alias in node.names} if isinstance(node, ast.Import) else {node.module or ""}
            faults += [where(source, node, f"imports {name}; processes are started in root.py") for name in sorted(names & PROCESSES)]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and OS_PROCESSES.fullmatch(node.attr)
        ):
            faults.append(where(source, node, f"os.{node.attr}; processes are started in root.py"))
    return faults


def path_faults(source: Source) -> list[str]:
    """Return where a reader or writer opens the machine's files by a literal path, past Root."""
    if source.wing == "root":
        return []
    faults = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and called(node) in READERS:
            faults += [where(source, node, f"{text} is opened past Root") for text in map(leading_text, node.args) if MACHINE.match(text)]
    return faults


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""


def leading_text(node: ast.expr) -> str:
    """Return the text that a literal or formatted string begins with, "" for anything else."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def name_faults(source: Source) -> list[str]:
    """Return what the importer or sanity refuses in a file's name or first line."""
    name = source.path.rpartition("/")[2]
    faults = []
    if name != "__init__.py" and ("__" in name or not FILE_NAME.fullmatch(name)):
        faults.append(f"{source.path}: file names are lower case, without a double underscore")
    if source.text.startswith("#!"):
        faults.append(f"{source.path}: has a shebang line")
    return faults


def init_faults(source: Source) -> list[str]:
    """Return the __init__.py that holds anything: the older ansible-core releases refuse it."""
    return [f"{source.path}: an __init__.py is empty"] if source.path.endswith("__init__.py") and source.text else []


def docstring_faults(source: Source) -> list[str]:
    """Return the public functions, classes and modules that have no docstring, or one that only says the name again."""
    faults = [] if not source.tree.body or ast.get_docstring(source.tree) else [f"{source.path}: the file says nothing about itself"]
    for node in public(source.tree.body):
        text = ast.get_docstring(node)
        if not text:
            faults.append(where(source, node, f"{node.name} has no docstring"))
        elif words(text) <= words(node.name.replace("_", " ")):
            faults.append(where(source, node, f"{node.name}'s docstring only says its name again"))
    return faults


def public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield public functions and classes, and the public methods of the latter."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def words(text: str) -> set[str]:
    """Return the words of a text, without endings that a repetition would add."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return {word.rstrip("s") for word in found} - {"the", "a", "an", "of", "get", "return"}


def annotation_faults(source: Source) -> list[str]:
    """Return the functions whose parameters or result are not annotated."""
    faults = []
    for node in functions(source):
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
        bare = [item.arg for item in parameters if item.annotation is None and item.arg not in {"self", "cls"}]
        if bare or node.returns is None:
            faults.append(where(source, node, f"{node.name} is not annotated: {', '.join(bare) or 'its result'}"))
    return faults


def mark_faults(source: Source) -> list[str]:
    """Return left-over marks, and switched-off checks but the one that root.py needs where it starts a process."""
    faults = []
    for number, line in enumerate(source.text.splitlines(), 1):
        if LEFT_OVER.search(line):
            faults.append(f"{source.path}:{number}: a left-over mark")
        if "pylint:" in line and not (source.path == MAY_START_PROCESSES and SWITCHED_OFF.fullmatch(line)):
            faults.append(f"{source.path}:{number}: switches pylint off")
    stubs = (node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == "NotImplementedError")
    return faults + [where(source, node, "a stub") for node in stubs]

"""The runtime, the glue and the modules keep to the bars of their size, names, docstrings and grammar."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable

import pytest
from ansible_collections.vfio.passthrough.tests.unit.structure import style
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT, RUNTIME, UTILS, Source, sources

Check = Callable[[Source], "list[str]"]
RUNTIME_CHECKS: list[Check] = [
    style.forbidden_faults,
    style.process_faults,
    style.path_faults,
    style.init_faults,
    style.docstring_faults,
    style.name_faults,
    style.annotation_faults,
    style.mark_faults,
]
TREE_CHECKS: list[Check] = [style.size_faults, style.grammar_faults]

BAD: list[tuple[Check, str, str]] = [
    (style.size_faults, "x.py", "x = 1\n" * 401),
    (style.size_faults, "x.py", "def f() -> None:\n" + "    x = 1\n" * 60),
    (style.grammar_faults, "x.py", "match 1:\n    case 1:\n        pass\n"),
    (style.grammar_faults, "x.py", "x = 1\n"),
    (style.grammar_faults, "x.py", "from __future__ import annotations\nzip([], [], strict=True)\n"),
    (style.grammar_faults, "x.py", "from __future__ import annotations\n@dataclass(frozen=True, slots=True)\nclass A:\n    pass\n"),
    (style.grammar_faults, "x.py", "from __future__ import annotations\nisinstance(1, int | str)\n"),
    (style.forbidden_faults, "x.py", "print(1)"),
    (style.forbidden_faults, "x.py", "import sys\nsys.exit(1)"),
    (style.forbidden_faults, "x.py", "assert True"),
    (style.forbidden_faults, "x.py", "try:\n    pass\nexcept:\n    pass\n"),
    (style.forbidden_faults, "x.py", "a, _ = 1, 2"),
    (style.process_faults, "kernel/x.py", "import subprocess"),
    (style.process_faults, "kernel/x.py", "from subprocess import run"),
    (style.process_faults, "kernel/x.py", "import os\nos.system('ls')"),
    (style.path_faults, "kernel/x.py", "open('/sys/bus/pci')"),
    (style.path_faults, "kernel/x.py", "Path(f'/proc/{pid}/fd')"),
    (style.path_faults, "kernel/x.py", "os.listdir('/dev')"),
    (style.init_faults, "kernel/__init__.py", '"""Text."""\nfrom . import pci\n'),
    (style.docstring_faults, "x.py", '"""Text."""\ndef f() -> None:\n    pass\n'),
    (style.docstring_faults, "x.py", '"""Text."""\ndef read_group() -> None:\n    """Read the group."""\n'),
    (style.docstring_faults, "x.py", '"""Text."""\nclass A:\n    """Holds much."""\n    def f(self) -> None:\n        pass\n'),
    (style.docstring_faults, "x.py", "x = 1\n"),
    (style.name_faults, "kernel/__main__.py", ""),
    (style.name_faults, "kernel/a__b.py", ""),
    (style.name_faults, "kernel/Pci.py", ""),
    (style.name_faults, "x.py", "#!/usr/bin/python\n"),
    (style.annotation_faults, "x.py", "def f(a) -> None:\n    pass\n"),
    (style.annotation_faults, "x.py", "def f(a: int):\n    pass\n"),
    (style.mark_faults, "x.py", f"x = 1  # {'todo'.upper()} later\n"),
    (style.mark_faults, "x.py", "import os  # pylint: disable=x\n"),
    (style.mark_faults, "x.py", "subprocess.run(  # pylint: disable=ansible-bad-function\n)"),
    (style.mark_faults, "root.py", "subprocess.run(  # pylint: disable=ansible-bad-function,x\n)"),
    (style.mark_faults, "root.py", "subprocess.call(  # pylint: disable=ansible-bad-function\n)"),
    (style.mark_faults, "x.py", "raise NotImplementedError\n"),
]


@pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: str(check.__name__))
def test_runtime_and_glue_obey(check: Check) -> None:
    faults = [fault for source in sources(UTILS) for fault in check(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("check", TREE_CHECKS, ids=lambda check: str(check.__name__))
def test_plugins_and_tests_obey(check: Check) -> None:
    files = [*sources("plugins"), *sources("tests")]
    faults = [fault for source in files for fault in check(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(("check", "path", "text"), BAD)
def test_check_sees_a_bad_example(check: Check, path: str, text: str) -> None:
    assert check(Source(f"{RUNTIME}/{path}", text))


def test_no_plugin_file_is_executable() -> None:
    files = [source.path for source in sources("plugins")]
    assert [path for path in files if os.access(ROOT / path, os.X_OK) and (ROOT / path).stat().st_mode & 0o111] == []


def test_tests_have_no_package_files() -> None:
    assert [source.path for source in sources("tests") if source.path.endswith("__init__.py")] == []


IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
print(importlib.import_module("hostdev.device.version").__version__)
"""


def import_all(folder: str, names: list[str]) -> subprocess.CompletedProcess[str]:
    """Import the modules by their short names in an interpreter without site-packages."""
    command = [sys.executable, "-S", "-B", "-c", IMPORT_ALL, folder, *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env={"PATH": os.environ.get("PATH", "")})


def test_runtime_imports_in_a_bare_interpreter() -> None:
    names = [source.module[len("plugins.module_utils.") :] for source in sources(RUNTIME)]
    done = import_all(str(ROOT / UTILS), names)
    assert done.returncode == 0, done.stderr


def test_bare_interpreter_shows_an_unguarded_import(tmp_path: os.PathLike[str]) -> None:
    package = os.path.join(tmp_path, "hostdev")
    os.mkdir(package)
    with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8") as file:
        file.write("import yaml\n")
    assert "yaml" in import_all(os.fspath(tmp_path), ["hostdev"]).stderr

"""Prepare this machine and the tree's private .venv for everything that the Makefile runs.

Run by the system's python3 as `python3 -m tests.harness.setup` from the root of the repository: nothing but
the standard library is there yet. Quick when nothing is to be done.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import debian, golang
from .cache import digest
from .say import say, step

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
REQUIREMENTS = ROOT / "tests/harness/requirements.txt"
STAMP = VENV / ".ready"
LINK = VENV / "collections/ansible_collections/vfio/passthrough"
TO_ROOT = "../../../.."

PROGRAM = """#!{python}
\"\"\"The hostdev program over the working tree.\"\"\"

import sys

sys.path.insert(0, {utils!r})

from hostdev.cli import main

raise SystemExit(main(sys.argv[1:]))
"""


def package_lists() -> list[Path]:
    """Return the lists of Debian packages, one per harness that needs any."""
    return sorted(ROOT.glob("tests/*/packages.txt"))


def prepare_machine() -> None:
    """Install what is missing of the machine's packages and Go; raise Unprepared with the line to run when not root."""
    present = debian.installed()
    absent = debian.missing(debian.wanted(package_lists()), present)
    if absent:
        debian.install(absent)
    golang.ensure()


def inputs() -> list[object]:
    """Return what the .venv depends on: a change of any makes it stale."""
    return [sys.version, sys.base_prefix, str(ROOT), Path(__file__), REQUIREMENTS]


def venv_is_ready() -> bool:
    """Tell whether the .venv was made from the present inputs and still runs."""
    try:
        stamped = STAMP.read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return stamped == stamp() and (VENV / "bin/python").exists()


def stamp() -> str:
    """Return the digest of the inputs."""
    return digest(item if isinstance(item, Path) else str(item) for item in inputs())


def python(arguments: Sequence[str]) -> str:
    """Run the .venv's interpreter and return what it prints; its errors go to the terminal."""
    return subprocess.run([str(VENV / "bin/python"), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def make_venv() -> None:
    """Make or refresh the .venv; its stamp is written last, so that an interrupted run is done again."""
    STAMP.unlink(missing_ok=True)
    with step("make .venv and install the tests' Python requirements", "20 to 60 s"):
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        python(["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(REQUIREMENTS)])
    point_at_tree()
    STAMP.write_text(stamp(), encoding="ascii")


def point_at_tree() -> None:
    """Make the tree importable as ansible_collections.vfio.passthrough, and `hostdev` runnable."""
    LINK.parent.mkdir(parents=True, exist_ok=True)
    if not LINK.is_symlink():
        LINK.symlink_to(TO_ROOT)
    site = Path(python(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (site / "vfio_passthrough.pth").write_text(f"{VENV / 'collections'}\n", encoding="utf-8")
    program = VENV / "bin/hostdev"
    text = PROGRAM.format(python=VENV / "bin/python", utils=str(ROOT / "plugins/module_utils"))
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)


def main() -> int:
    """Prepare what is missing; say what to do where this cannot."""
    os.chdir(ROOT)
    try:
        prepare_machine()
        if not venv_is_ready():
            make_venv()
    except debian.Unprepared as error:
        say(str(error))
        return 1
    except subprocess.CalledProcessError as error:
        say(f"setting up: `{' '.join(map(str, error.cmd))}` ended with exit {error.returncode}; its own words are above")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Build the collection from a clean copy and import it as Galaxy and Automation Hub would, without asking either."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .cache import folder
from .environments import environment
from .say import say, step
from .work import BUILD, VENV_BIN, Tally, call, copy_tree

REQUIREMENTS = ("galaxy-importer>=0.4.30",)
SETTINGS = """[galaxy-importer]
CHECK_REQUIRED_TAGS = True
REQUIRE_V1_OR_GREATER = True
CHECK_CHANGELOG = True
RUN_ANSIBLE_DOC = True
RUN_ANSIBLE_LINT = True
RUN_FLAKE8 = False
RUN_ANSIBLE_TEST = False
OFFLINE_ANSIBLE_LINT = True
LOG_LEVEL_MAIN = INFO
"""
WARNED = re.compile(r"^(?:\S+ )?WARNING: ?(.*)", re.MULTILINE)
FAULTY = re.compile(r"^(?:\S+ )?ERROR: ?(.*)", re.MULTILINE)


def build_artifact() -> Path:
    """Build the tarball from a copy of what git knows, under build/artifact; return it."""
    tree = copy_tree(folder() / "copy-importer")
    output = BUILD / "artifact"
    for old in output.glob("*.tar.gz"):
        old.unlink()
    good, dummy = call(
        "collection-build", [str(VENV_BIN / "ansible-galaxy"), "collection", "build", "--output-path", str(output)], cwd=tree
    )
    if not good:
        raise RuntimeError("building the collection failed; the reason is above")
    return next(output.glob("*.tar.gz"))


def run() -> Tally:
    """Build and import; every warning or error of the importer is a failure."""
    place = environment("galaxy-importer", Path(sys.executable), REQUIREMENTS, "40 s")
    artifact = build_artifact()
    settings = BUILD / "galaxy-importer.cfg"
    settings.write_text(SETTINGS, encoding="utf-8")
    env = {"GALAXY_IMPORTER_CONFIG": str(settings), "PATH": f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin"}
    with step(f"import {artifact.name} ({artifact.stat().st_size // 1024} KiB)", "20 s"):
        command = [str(place / "bin/python"), "-m", "galaxy_importer.main", str(artifact)]
        good, output = call("importer", command, cwd=BUILD, env=env)
    found = FAULTY.findall(output) + WARNED.findall(output)
    for line in found:
        say(f"importer: {line}")
    return Tally(1, 0) if good and not found else Tally(0, max(1, len(found)))

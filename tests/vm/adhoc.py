"""One module of the collection, or one playbook, run on a worker by the ansible commands, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .machine import Worker

BIN = Path(sys.executable).parent
COLLECTIONS = BIN.parent / "collections"


def inventory(worker: Worker, folder: Path) -> Path:
    """Write the inventory that has the worker alone, in the group that the playbooks play on, and return it."""
    place = folder / "inventory"
    place.write_text(f"[hostdev]\n{worker.inventory_line()}\n", encoding="utf-8")
    return place


def arguments(worker: Worker, folder: Path, module: str, options: dict[str, Any], check: bool) -> list[str]:
    """Return the command line; its inventory is written to folder."""
    words = [str(BIN / "ansible"), "all", "-i", str(inventory(worker, folder)), "-m", f"vfio.passthrough.{module}"]
    # the command takes "{}" for a raw parameter
    words += ["-a", json.dumps(options)] if options else []
    return [*words, "--check"] if check else words


def environment() -> dict[str, str]:
    """Return the environment in which ansible finds the working tree's collection."""
    return {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "false"}


def run(worker: Worker, module: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """Run a module and return its result, whether it failed or not; AssertionError when there is none."""
    with tempfile.TemporaryDirectory() as folder:
        command = arguments(worker, Path(folder), module, options, check)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    _head, arrow, text = done.stdout.partition(" => ")
    assert arrow, f"no result of {module}:\n{done.stdout}\n{done.stderr}"
    result: dict[str, Any] = json.loads(text)
    return result


def start(worker: Worker, folder: Path, module: str, **options: Any) -> subprocess.Popen[str]:
    """Start a module and do not wait for it; whoever calls ends it."""
    command = arguments(worker, folder, module, options, False)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())


def play(worker: Worker, folder: Path, playbook: str, **variables: Any) -> tuple[int, str]:
    """Run a playbook of the collection and return its exit code and output."""
    words = [
        str(BIN / "ansible-playbook"),
        "-i",
        str(inventory(worker, folder)),
        f"vfio.passthrough.{playbook}",
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env={**environment(), "ANSIBLE_INJECT_FACT_VARS": "false"}
    )
    return done.returncode, done.stdout + done.stderr

"""Deploying the runtime: how many modules run when nothing changed, and how large the archive is."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.action.runtime_release import RUNTIME
from ansible_collections.vfio.passthrough.plugins.module_utils.glue import pack

from ..harness.work import VENV_BIN, environment
from .executions import counting
from .figures import Figure

TASK = "vfio.passthrough.runtime_release"


def deploy(folder: Path) -> str:
    """Deploy below a folder of this machine and return what the playbook said; a failed run ends the benchmark."""
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "tasks": [{TASK: {"prefix": str(folder / "lib"), "command": str(folder / "hostdev")}}],
        }
    ]
    file = folder / "deploy.yml"
    file.write_text(json.dumps(play), encoding="utf-8")
    command = [str(VENV_BIN / "ansible-playbook"), "-i", "localhost,", str(file)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"the runtime could not be deployed: {done.stdout}{done.stderr}")
    return done.stdout


def measure() -> Iterator[Figure]:
    """Yield the executions of an unchanged deployment, and the archive's bytes beside those of its files."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        deploy(folder)
        with counting(folder) as counter:
            said = deploy(folder)
        if "changed=0" not in said:
            raise SystemExit(f"an unchanged runtime was deployed again: {said}")
        yield Figure("deploy, unchanged: modules executed", "1", len(counter.all()), aim=1)
    files = pack.tree(RUNTIME)
    yield Figure("deploy: archive, beside its files", "bytes", len(pack.pack(files)), sum(map(len, files.values())))

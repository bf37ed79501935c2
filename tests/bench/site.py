"""site.yml with nothing to do: how many modules run on the worker, and its time against as many pings."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

from ..cluster.controlplane import ControlPlane
from ..e2e.line import Line, start
from ..harness.work import VENV_BIN, environment
from .executions import counting, ours_on_the_worker
from .figures import Figure

MOST = 12


def ping(line: Line, times: int) -> float:
    """Run a play of so many pings on the worker and return its seconds."""
    play = [{"hosts": "all", "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.ping": {}}] * times}]
    file = line.work / "ping.yml"
    file.write_text(json.dumps(play), encoding="utf-8")
    command = [str(VENV_BIN / "ansible-playbook"), "-i", str(line.inventory), str(file)]
    env = environment({"ANSIBLE_HOST_KEY_CHECKING": "false"})
    begin = time.perf_counter()
    subprocess.run(command, cwd=line.work, env=env, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - begin


def quiet_site(line: Line) -> float:
    """Run site.yml, insist that it changes nothing, and return its seconds."""
    begin = time.perf_counter()
    play = line.site()
    taken = time.perf_counter() - begin
    if play.code or play.recap().get("changed") != 0:
        raise SystemExit(f"site.yml had something to do: {play.recap()}\n{play.out[-2000:]}")
    return taken


def measure_line(line: Line) -> Iterator[Figure]:
    """Yield the figures of a line on which site.yml has run; demo and tests may call this with theirs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, counting(Path(folder)) as counter:
        quiet_site(line)
        everything = counter.all()
    counted = ours_on_the_worker(everything)
    for (role, module), number in sorted(Tally((one.role, one.module) for one in everything if one.transport != "local").items()):
        sys.stdout.write(f"    {role or '-'}: {module} x {number}\n")
    yield Figure("site.yml, nothing to do: modules executed on the worker", "1", len(counted), aim=MOST)
    pings, sites = [], []
    for _turn in range(3):
        pings.append(ping(line, len(counted)))
        sites.append(quiet_site(line))
    yield Figure(f"site.yml, nothing to do, beside a play of {len(counted)} pings", "s", min(sites), min(pings))


def measure() -> Iterator[Figure]:
    """Start control plane and worker, run site.yml once, then measure."""
    with tempfile.TemporaryDirectory(prefix="vfio-bench-") as folder, ControlPlane() as plane:
        line = start(Path(folder), plane)
        with line.worker:
            play = line.site(show=True)
            if play.code:
                raise SystemExit("site.yml failed")
            yield from measure_line(line)

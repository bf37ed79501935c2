"""Our device plugin beside the minimal Go one: each a process that answers the same, timed by the same Go client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..fakes import process
from ..fakes.host import FakeHost
from ..fakes.process import GoKubelet
from ..guest.guest import PYTHON
from ..harness import programs
from .launcher import runtime_of_the_image

RESOURCE = "example.com/gpu"
SELECT = {"id": "10de:2684"}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True)
class Side:
    """One plugin that may be started: its command, the plugin folder that it serves in, and the ids that it lists."""

    name: str
    command: tuple[str, ...]
    folder: Path
    ids: tuple[str, ...]

    def socket(self) -> Path:
        """Return the socket that it serves on; it is the only one beside the kubelet's."""
        (found,) = [one for one in self.folder.iterdir() if one.is_socket() and one.name != "kubelet.sock"]
        return found


@dataclass(frozen=True)
class Running:
    """A side that registered with a kubelet of its own and has sent its list."""

    side: Side
    process: subprocess.Popen[bytes]
    kubelet: GoKubelet


def make_host(base: Path, devices: int) -> FakeHost:
    """Make a machine with so many cards that are bound to vfio-pci, each with a group and its node, and their declaration."""
    host = FakeHost(base)
    for number in range(devices):
        group = str(number + 10)
        host.function(
            f"0000:{number // 32 + 1:02x}:{number % 32:02x}.0", driver="vfio-pci", group=group, files={"numa_node": f"{number & 1}\n"}
        )
        host.node(group)
    host.node("vfio")
    host.write("/etc/devices.json", json.dumps({"devices": [{"resource": RESOURCE, "select": SELECT}]}))
    return host


@contextmanager
def sides(devices: int) -> Iterator[tuple[Side, Side]]:
    """Yield our plugin and the peer for so many devices; the peer's file holds what ours answered for each."""
    with tempfile.TemporaryDirectory(prefix="vfp-", dir=MEMORY) as name:
        base = Path(name)
        host = make_host(base, devices)
        folders = [base / "ours", base / "peer"]
        for folder in folders:
            folder.mkdir()
        # as a node has it: the distribution's interpreter and libraries, the runtime compiled once
        environment = ("env", f"PYTHONPATH={runtime_of_the_image(base / 'lib')}", "PYTHONDONTWRITEBYTECODE=1")
        ids = tuple(str(number + 10) for number in range(devices))
        ours = Side("ours", (*environment, *process.command(host, folders[0], PYTHON)), folders[0], ids)
        answers = base / "answers.json"
        with running(ours) as told:
            answers.write_text(json.dumps(_recorded(told)), encoding="utf-8")
        yield ours, Side("peer", (str(programs.minimal()), "-folder", str(folders[1]), "-answers", str(answers)), folders[1], ids)


def _recorded(told: Running) -> dict[str, Any]:
    """Return the file of the minimal plugin: our list, and our answer for each device."""
    listed = told.kubelet.listed(RESOURCE, bool)["response"]
    answers = {}
    for one in listed["devices"]:
        request = {"container_requests": [{"devices_ids": [one["ID"]]}]}
        (answers[one["ID"]],) = told.kubelet.call(RESOURCE, "Allocate", request)["response"]["container_responses"]
    return {"resource": RESOURCE, "list": listed, "answers": answers}


@contextmanager
def running(side: Side) -> Iterator[Running]:
    """Start a side before a kubelet of its own; yield it when the kubelet has its whole list; end both."""
    log = side.folder.with_suffix(".log")
    with GoKubelet(side.folder) as kubelet, log.open("wb") as out:
        child = subprocess.Popen(list(side.command), stdout=out, stderr=out)
        try:
            kubelet.listed(RESOURCE, lambda devices: [one["ID"] for one in devices] == list(side.ids))
            yield Running(side, child, kubelet)
        except BaseException:
            sys.stdout.write(log.read_text(encoding="utf-8")[-2000:])
            raise
        finally:
            child.terminate()
            child.wait(process.PATIENCE)


def allocate(side: Side, ids: Sequence[str], calls: int, warm: int = 200) -> tuple[list[float], Any]:
    """Call Allocate so often for one container and return the microseconds of each call, and the answer."""
    command = [str(programs.client()), "allocate", "-socket", str(side.socket()), "-ids", ",".join(ids)]
    done = subprocess.run([*command, "-n", str(calls), "-warm", str(warm)], stdout=subprocess.PIPE, check=True)
    told = json.loads(done.stdout)
    return told["us"], told["response"]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of them lies: 0.5 for the median."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]

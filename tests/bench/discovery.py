"""Finding 8 permitted functions among many: what our plugin does at each look, against KubeVirt's own discovery function."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find

from ..harness import programs
from . import peers
from .figures import Figure
from .scan import MATCHES, SIZES, make_tree

LOOKS = {64: 300, 512: 200, 4096: 100}
MOST = 0.3
FIRST, AGAIN, PEER = "discovery", "later look", "peer"


def measure_tree(base: Path, size: int) -> dict[str, list[float]]:
    """Return the seconds of our looks from nothing, of our looks that know the former, and of the peer's, taken in turn.

    A side that finds other functions ends the benchmark.
    """
    host = make_tree(base, size)
    for group in (base / "sys/kernel/iommu_groups").iterdir():
        host.node(group.name)
    declaration = parse_declaration([{"resource": peers.RESOURCE, "select": peers.SELECT}])
    taken: dict[str, list[float]] = {FIRST: [], AGAIN: [], PEER: []}
    with kubevirts(base) as peer:
        for _look in range(LOOKS[size]):
            begin = time.perf_counter()
            mine = find(host.root, declaration).offers
            first = time.perf_counter()
            again = find(host.root, declaration, mine).offers
            taken[FIRST].append(first - begin)
            taken[AGAIN].append(time.perf_counter() - first)
            spent, theirs = peer()
            taken[PEER].append(spent)
            if len(theirs) != MATCHES or mine != again or sorted(offer.name for offer in mine) != sorted(theirs):
                raise SystemExit(f"of {size} functions we found {mine}, then {again}, the peer {theirs}")
    return taken


@contextmanager
def kubevirts(base: Path) -> Iterator[Callable[[], tuple[float, list[str]]]]:
    """Yield what makes KubeVirt's function look once and returns the seconds that it took and the addresses that it found."""
    command = [str(programs.manager()), "-root", str(base), "-resource", peers.RESOURCE, "-id", peers.SELECT["id"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as peer:
        asked, told = peer.stdin, peer.stdout
        assert asked is not None and told is not None

        def look() -> tuple[float, list[str]]:
            asked.write("look\n")
            asked.flush()
            answer = json.loads(told.readline())
            return answer["ns"] / 1e9, answer["found"]

        yield look
        asked.close()


def measure() -> Iterator[Figure]:
    """Yield medians and 99th percentiles for each size, of looks from nothing and of those that know the former."""
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=peers.MEMORY) as base:
            taken = measure_tree(Path(base), size)
        for what in (FIRST, AGAIN):
            for share, name, aim in ((0.5, "median", MOST), (0.99, "p99", None)):
                ours, theirs = (peers.percentile(taken[side], share) * 1000 for side in (what, PEER))
                yield Figure(f"{what}, {size} functions, {name}", "ms", ours, theirs, aim, aims_at_ratio=aim is not None)

"""Finding 8 permitted functions among many: what our plugin does at each look, against KubeVirt's own discovery function."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find

from ..harness import programs
from . import peers
from .figures import Figure, Pair
from .scan import MATCHES, SIZES, make_tree

LOOKS = {64: 300, 512: 200, 4096: 100}
MOST = 0.3


def measure_tree(base: Path, size: int) -> Pair:
    """Return the seconds of each look of both, taken in turn; a side that finds other functions ends the benchmark."""
    host = make_tree(base, size)
    for group in (base / "sys/kernel/iommu_groups").iterdir():
        host.node(group.name)
    declaration = parse_declaration([{"resource": peers.RESOURCE, "select": peers.SELECT}])
    command = [str(programs.manager()), "-root", str(base), "-resource", peers.RESOURCE, "-id", peers.SELECT["id"]]
    taken = Pair([], [])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        for _look in range(LOOKS[size]):
            begin = time.perf_counter()
            mine = find(host.root, declaration)
            taken.ours.append(time.perf_counter() - begin)
            peer.stdin.write("look\n")
            peer.stdin.flush()
            told = json.loads(peer.stdout.readline())
            taken.peer.append(told["ns"] / 1e9)
            if len(told["found"]) != MATCHES or sorted(offer.name for offer in mine.offers) != sorted(told["found"]):
                raise SystemExit(f"of {size} functions we found {mine.offers}, the peer {told['found']}")
        peer.stdin.close()
    return taken


def measure() -> Iterator[Figure]:
    """Yield medians and 99th percentiles for each size."""
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=peers.MEMORY) as base:
            taken = measure_tree(Path(base), size)
        for share, name, aim in ((0.5, "median", MOST), (0.99, "p99", None)):
            ours, theirs = (peers.percentile(times, share) * 1000 for times in (taken.ours, taken.peer))
            yield Figure(f"discovery, {size} functions, {name}", "ms", ours, theirs, aim, aims_at_ratio=aim is not None)

"""Finding 8 declared functions among many, against the bare loop that anybody would write: list, and four reads each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.inventory import find, read_inventory

from ..fakes.host import FakeHost
from .figures import Figure, interleaved

SIZES = (64, 512, 4096)
MATCHES = 8
READS = ("vendor", "device", "class", "numa_node")
REPETITIONS = {64: 60, 512: 20, 4096: 7}
MOST = 0.7


def addresses(size: int) -> Iterator[str]:
    """Yield addresses slot by slot, eight functions in each."""
    for number in range(size):
        yield f"0000:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"


def make_tree(base: Path, size: int) -> FakeHost:
    """Make a machine of that many functions, of which 8, spread over it, are ours, each alone in its slot's first place."""
    host = FakeHost(base)
    step = size // MATCHES
    for number, address in enumerate(addresses(size)):
        ours = number % step == 0
        host.function(
            address,
            "10de:2684" if ours else "8086:1521",
            "030000" if ours else "020000",
            driver="vfio-pci" if ours else "",
            group=str(number) if ours else "",
            files={"numa_node": "0\n"},
        )
    return host


def bare_loop(folder: str) -> list[list[str]]:
    """Read four attributes of every function."""
    found = []
    for name in os.listdir(folder):
        values = []
        for attribute in READS:
            with open(os.path.join(folder, name, attribute), encoding="ascii") as file:
                values.append(file.read().strip())
        found.append(values)
    return found


def measure() -> Iterator[Figure]:
    """Yield the figure of each size, and for the whole inventory (groups and companions read too) one without an aim."""
    declaration = parse_declaration([{"resource": "example.com/gpu", "select": {"id": "10de:2684"}}])
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=memory) as base:
            host = make_tree(Path(base), size)
            folder = str(host.root.at("/sys/bus/pci/devices"))
            if len(find(host.root, declaration)) != MATCHES or len(bare_loop(folder)) != size:
                raise SystemExit(f"the tree of {size} functions is not as it was meant")
            best = interleaved(partial(find, host.root, declaration), partial(bare_loop, folder), REPETITIONS[size]).best
            yield Figure(f"scan, {size} functions", "ms", best[0] * 1000, best[1] * 1000, MOST, aims_at_ratio=True)
            whole = partial(read_inventory, host.root, declaration)
            best = interleaved(whole, partial(bare_loop, folder), REPETITIONS[size] // 3 + 1).best
            yield Figure(f"whole inventory, {size} functions", "ms", best[0] * 1000, best[1] * 1000)

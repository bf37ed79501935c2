"""What the device plugin does when nothing happens: how often it looks, how much it reads then, and the time that it takes.

An hour has 12 checks of 300 s; here the clock runs faster, at one a second. (KubeVirt's virt-handler, by its code, scans the whole
bus at each heartbeat, about 37 times an hour.) The processor's time is measured with the clock as it is.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import inotify.adapters
import inotify.constants

from ..fakes.process import GoKubelet, PluginProcess
from ..guest.guest import PYTHON
from . import peers
from .figures import Figure
from .launcher import runtime_of_the_image
from .scan import MATCHES, make_tree

FUNCTIONS = 512
DEVICES = 64
CHECKS_AN_HOUR = 12
SECONDS = 20
# reasons of skipped functions are looked for a second after the last change
SETTLED = 3


def looks(base: Path) -> tuple[int, int]:
    """Return what was opened within as many checks as an hour has: the folder of bound functions, and all that is not of ours."""
    host = make_tree(base, FUNCTIONS)
    for group in (base / "sys/kernel/iommu_groups").iterdir():
        host.node(group.name)
    host.write("/etc/devices.json", json.dumps({"devices": [{"resource": peers.RESOURCE, "select": peers.SELECT}]}))
    folder = base / "plugins"
    folder.mkdir()
    bound = base / "sys/bus/pci/drivers/vfio-pci"
    bus = [base / "sys/bus/pci/devices", *(host.folder_of(one) for one in host.made if not (bound / one).exists())]
    with GoKubelet(folder) as kubelet, PluginProcess(host, folder, PYTHON, runtime_of_the_image(base / "lib"), check_seconds=1.0):
        kubelet.listed(peers.RESOURCE, lambda devices: len(devices) == MATCHES)
        time.sleep(SETTLED)
        found = opened([bound, *bus], CHECKS_AN_HOUR)
    if not found[str(bound)]:
        raise SystemExit("the service did not look at what is bound")
    return found.pop(str(bound)), sum(found.values())


def opened(folders: Sequence[Path], seconds: float) -> Counter[str]:
    """Return in how many tenths of the coming seconds each folder was opened, or a file in it, by the kernel's account (inotify)."""
    account = inotify.adapters.Inotify(block_duration_s=0)
    for folder in folders:
        account.add_watch(str(folder), inotify.constants.IN_OPEN)
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # in short turns: the kernel tells what happens twice once, until it is read
        time.sleep(0.1)
        found.update({folder for _header, _kinds, folder, _name in account.event_gen(timeout_s=0, yield_nones=False)})
    return found


def cpu(pid: int) -> float:
    """Return the seconds that the threads of a process have run, by the scheduler's count in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text(encoding="ascii").split()[0]) for one in threads) / 1e9


def rest(side: peers.Side) -> float:
    """Return the seconds of processor time that a side takes in an hour in which nothing happens, from those of some seconds."""
    with peers.running(side) as it:
        time.sleep(SETTLED)
        before = cpu(it.process.pid)
        time.sleep(SECONDS)
        return (cpu(it.process.pid) - before) * 3600 / SECONDS


def measure() -> Iterator[Figure]:
    """Yield how often it looks in an hour, how much of the rest of the machine it opens, and the processor time that waiting takes."""
    with tempfile.TemporaryDirectory(prefix="vfp-", dir=peers.MEMORY) as base:
        checks, foreign = looks(Path(base))
    yield Figure("idle: looks at what is bound, in an hour's 12 checks", "1", checks, aim=CHECKS_AN_HOUR)
    yield Figure("idle: other functions and the bus opened", "1", foreign, aim=0)
    with peers.sides(DEVICES) as (ours, peer):
        yield Figure("idle: processor time between checks, an hour", "s", rest(ours), rest(peer))

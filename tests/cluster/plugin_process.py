"""The device plugin as a process of its own beside a real kubelet, over a made host whose nodes are character devices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.ledger import Ledger, read_ledger
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

SECONDS = 120.0
USER = 107
RUNS = count()
# Of a made /dev/iommu nothing but being opened can be asked. Each line of the log begins with its time.
PROGRAM = """
import logging, os, sys
from functools import partial
from pathlib import Path
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import service
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
logging.basicConfig(level=logging.INFO, format="%(created).3f %(message)s")
base, folder = sys.argv[1:]
places = {"run_folder": base + "/run", "config": base + "/etc/devices.json", "grants": base + "/g", "release": base + "/lib/current"}
places["kubelet_root"] = os.path.dirname(folder)
service.Service = partial(service.Service, opener=lambda root: os.open(root.at("/dev/iommu"), os.O_RDWR))
raise SystemExit(service.run(Root(Path(base)), PluginOptions(plugin_folder=folder, host_prefix=base, **places)))
"""
# without the right to raise hard limits, which the machine's root need not have; and never longer there than the tests
AS_ON_A_NODE = ("setpriv", "--pdeathsig", "KILL", "--bounding-set=-sys_resource", "--")

# a process that enters a container's mount namespace as its user, and asks there
PEER = """
import array, ctypes, json, os, resource, socket, sys
told = json.loads(sys.argv[1])
if told["limits"]:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, told["limits"])
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(os.open("/proc/" + told["pid"] + "/ns/mnt", os.O_RDONLY), 0x20000):
    raise OSError(ctypes.get_errno(), "setns")
os.setgroups([])
os.setgid(told["user"])
os.setuid(told["user"])
answers = []
for folder in told["folders"]:
    made = socket.socket(socket.AF_UNIX)
    made.connect(folder + "/grant.sock")
    made.sendall(json.dumps({"version": 1, "memlock_bytes": told["memlock"]}).encode() + b"\\n")
    answers.append(json.loads(made.makefile("r").readline()))
handed = []
for path in told["handovers"]:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    said, ((_level, _type, data),), _flags, _address = made.recvmsg(1, socket.CMSG_SPACE(4))
    made.sendall(b"1")
    handed.append([said.hex(), os.fstat(array.array("i", data)[0]).st_rdev])
print(json.dumps({"answers": answers, "limits": resource.getrlimit(resource.RLIMIT_MEMLOCK), "handed": handed}))
"""


def wait_until(what: str, holds: Callable[[], Any], seconds: float = SECONDS) -> Any:
    limit = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.1)


@dataclass
class Plugin:
    """The service over one made host; its lines are in plugin.log below the host."""

    host: FakeHost
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.host.base / "plugin.log"

    def start(self) -> None:
        command = [*AS_ON_A_NODE, sys.executable, "-c", PROGRAM, str(self.host.base), str(self.folder)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def stop(self, sign: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code, of a signal that it does not handle the negative number."""
        assert self.process is not None
        self.process.send_signal(sign)
        return self.process.wait(SECONDS)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def declare(self, *entries: object, whole: bool = False) -> None:
        self.write(json.dumps({"devices": entries}), whole=whole)

    def write(self, text: str, *, whole: bool) -> None:
        """Write the configuration, in place or, whole, by a new file in place of the former."""
        if whole:
            self.host.write("/etc/new.json", text).rename(self.host.base / "etc/devices.json")
        else:
            self.host.write("/etc/devices.json", text)

    def state(self) -> dict[str, Any]:
        """Return the state file, empty while there is none."""
        with suppress(FileNotFoundError):
            return dict(json.loads((self.host.base / "run/devices.json").read_text()))
        return {}

    def registered(self, resource: str) -> list[float]:
        """Return the times, in seconds since the epoch, at which the kubelet took the resource's registration."""
        lines = [line.partition(" ") for line in self.log.read_text().splitlines()]
        return [float(when) for when, _space, text in lines if text.startswith(f"{resource}: registered with the kubelet")]

    def wait_registered(self, resource: str, former: int) -> None:
        """Wait for a registration after so many former ones."""
        wait_until(f"registration {former + 1} of {resource}", lambda: len(self.registered(resource)) > former)

    def open_files(self) -> int:
        assert self.process is not None
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def files(self) -> list[str]:
        """Return what it has in its run folder, its grants' folder, and the kubelet's plugin folder."""
        own = [path for name in ("run", "g", "iommufd") for path in (self.host.base / name).rglob("*")]
        return sorted(str(path) for path in [*own, *self.folder.iterdir()] if not path.name.startswith("kubelet"))


@contextmanager
def made_plugin(node: NativeNode, make: Callable[[FakeHost], Sequence[object]]) -> Iterator[Plugin]:
    """Run the service of a host that `make` furnishes; it returns what is declared. It has to end well."""
    base = Path(tempfile.mkdtemp(prefix="vfp-"))
    host = FakeHost(base)
    shutil.rmtree(base / "proc")
    (base / "proc").symlink_to("/proc")
    (base / "sys/fs").mkdir()
    (base / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
    plugin = Plugin(host, node.device_plugins)
    plugin.declare(*make(host))
    plugin.start()
    try:
        wait_until("a state, or the service's end", lambda: plugin.state() or not plugin.runs)
        assert plugin.runs, plugin.log.read_text()
        yield plugin
    finally:
        code = plugin.stop()
        text = plugin.log.read_text()
        shutil.rmtree(base)
    assert code == 0, text


def make_node(host: FakeHost, path: str, minor: int) -> Path:
    """Make a character device of the machine ("/dev/vfio/16") that harms nobody (major 1), in place of what is there.

    minor: of a memory device, 3 to 9, or from 200 on of none, which may be opened only to be told so. A machine that lets
    nobody make one makes no containers either.
    """
    place = host.base / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
    return place


def make_cards(host: FakeHost) -> None:
    """Make two cards of two functions each, groups 16 and 17."""
    for bus, group, minor in (("01", "16", 3), ("02", "17", 5)):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group, files={"numa_node": "0\n"})
        host.function(f"0000:{bus}:00.1", "10de:22ba", "040300", driver="vfio-pci", group=group)
        make_node(host, f"/dev/vfio/{group}", minor)
    make_node(host, "/dev/vfio/vfio", 7)


def ask(
    pid: str,
    *folders: str,
    memlock: int = 0,
    limits: tuple[int, int] | None = None,
    handovers: Sequence[str] = (),
    user: int = USER,
) -> dict[str, Any]:
    """Ask at grant folders from inside the container of a process: {"answers", "limits", "handed"}.

    limits: of the process that asks, which has this machine's otherwise. handovers: sockets at which to ask for descriptors;
    "handed" has of each the byte that came with it, as hex digits, and its device number.
    """
    told = {"pid": pid, "user": user, "folders": folders, "memlock": memlock, "limits": limits, "handovers": list(handovers)}
    done = subprocess.run([sys.executable, "-c", PEER, json.dumps(told)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def containers(plane: ControlPlane, name: str) -> dict[str, tuple[str, int]]:
    """Return (id, restarts) of each container of a pod that runs, by name; empty as long as one does not."""
    found = plane.get("pod", name)["status"].get("containerStatuses", ())
    running = all("running" in one["state"] for one in found)
    return {one["name"]: (one["containerID"].rpartition("/")[2], one["restartCount"]) for one in found if running}


def process_of(container: str) -> str:
    """Return the first process of a container, by the id that the runtime names its cgroup with."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and container in (folder / "cgroup").read_text():
                (numbers,) = [line for line in (folder / "status").read_text().splitlines() if line.startswith("NSpid:")]
                if numbers.split()[-1] == "1":
                    return folder.name
    raise AssertionError(f"no process of container {container}")


def counts(plane: ControlPlane, node: NativeNode, resource: str) -> tuple[str, str]:
    """Return capacity and allocatable, empty where the node does not know the resource."""
    status = plane.get("node", node.name)["status"]
    return status["capacity"].get(resource, ""), status["allocatable"].get(resource, "")


def ledger(node: NativeNode) -> Ledger:
    return read_ledger(Root(), str(node.kubelet_folder), str(node.device_plugins))


def run_pod(plane: ControlPlane, node: NativeNode, name: str, command: list[str], resources: dict[str, str]) -> str:
    """Return what a pod wrote. A kubelet that has just started may refuse it for good; a controller would make another, and so do we."""
    limit = time.monotonic() + SECONDS
    while True:
        # logs outlive their pods for a while
        called = f"{name}-{next(RUNS)}"
        plane.apply(pod(called, command, resources=resources, node=node.name, user=USER))
        found = wait_for_phase(plane, called, "Succeeded", "Failed", seconds=SECONDS)
        text = node.pod_log("default", called, "main")
        delete_pods(plane, called)
        if found["status"]["phase"] == "Succeeded":
            return text
        assert time.monotonic() < limit, found["status"]


def hold_pod(plane: ControlPlane, node: NativeNode, name: str, resources: dict[str, str]) -> None:
    """Run a pod that keeps its units until it is deleted."""
    plane.apply(pod(name, ["sleep", "100000"], resources=resources, node=node.name, user=USER))
    wait_for_phase(plane, name, "Running", seconds=SECONDS)


def delete_pods(plane: ControlPlane, *names: str, wait: bool = True) -> None:
    plane.kubectl("delete", "pod", *names, f"--wait={str(wait).lower()}", "--grace-period=1")

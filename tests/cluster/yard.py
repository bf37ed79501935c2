"""A made host with units of every kind, their grant server, and jails that look like containers' roots. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import GrantServer, Place
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

# runs in a mount namespace of its own: mounts what the container was given into the jail, and becomes the one who asks
OUTER = """
import ctypes, json, os, resource, subprocess, sys
told = json.loads(sys.argv[1])
for source, point in told["mounts"]:
    place = told["jail"] + point
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        open(place, "a").close()
    subprocess.run(["mount", "--bind", source, place], check=True)
for dummy in range(told["clutter"]):
    place = (told["jail"] + "/" + "m" * 250).encode()
    os.makedirs(place, exist_ok=True)
    if ctypes.CDLL(None).mount(place, place, None, 4096, None):
        raise OSError("mount")
if told["limits"]:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, told["limits"])
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""
ENTER = """
import ctypes, json, os, resource, socket, sys
told = json.loads(sys.argv[1])

def own_users(uid):
    # as container runtimes do it: somebody outside maps root in there to a user of the host
    asked, done, me = os.pipe(), os.pipe(), os.getpid()
    if os.fork() == 0:
        os.read(asked[0], 1)
        for kind in ("uid", "gid"):
            with open(f"/proc/{me}/{kind}_map", "w") as file:
                file.write(f"0 {uid} 1")
        os.write(done[1], b"!")
        os._exit(0)
    if ctypes.CDLL(None).unshare(0x10000000 | 0x20000):
        raise OSError("unshare")
    os.write(asked[1], b"!")
    os.read(done[0], 1)
    os.wait()

if told["users"]:
    own_users(told["uid"])
os.chroot(told["jail"])
os.chdir("/")
os.setgroups([])
os.setgid(0 if told["users"] else told["uid"])
os.setuid(0 if told["users"] else told["uid"])

def connect():
    made = socket.socket(socket.AF_UNIX)
    made.connect(told["folder"] + "/grant.sock")
    return made

def answer(made):
    return json.loads(made.makefile("rb").readline())
"""
ASK = (
    ENTER
    + """
answers = []
for line in told["lines"]:
    made = connect()
    made.sendall(bytes.fromhex(line))
    answers.append(answer(made))
print(json.dumps([answers, resource.getrlimit(resource.RLIMIT_MEMLOCK)]))
"""
)
NODES = {"vfio/16": 3, "vfio/vfio": 7, "vfio/devices/vfio0": 5, "iommu": 8, "bus/usb/001/004": 9, "kvm": 5, "vfio/20": 9}


def request(memlock: int = 0) -> bytes:
    return json.dumps({"version": 1, "memlock_bytes": memlock}).encode() + b"\n"


@dataclass
class Jail:
    """A container: its root, and what it is given. clutter: so many mounts more."""

    top: Path
    mounts: list[tuple[str, str]] = field(default_factory=list)
    uid: int = 107
    users: bool = False
    limits: tuple[int, int] | None = None
    clutter: int = 0

    def node(self, name: str, minor: int | None = None) -> Path:
        place = self.top / "dev" / name
        make(place, NODES[name] if minor is None else minor)
        return place

    def give(self, place: Place) -> None:
        self.mounts.append((place.folder, place.folder))

    def command(self, folder: str, code: str, **told: Any) -> list[str]:
        more = {name: getattr(self, name) for name in ("mounts", "uid", "users", "limits", "clutter")}
        return [
            "unshare",
            "--mount",
            sys.executable,
            "-c",
            OUTER,
            json.dumps({**more, "jail": str(self.top), "folder": folder, **told}),
            code,
        ]

    def start(self, folder: str, code: str, **told: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(folder, code, **told), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, place: Place, *lines: bytes) -> tuple[list[dict[str, Any]], tuple[int, int]]:
        """Say each line over a connection of its own; return the answers and the limits afterwards."""
        out, _err = self.start(place.folder, ASK, lines=[line.hex() for line in lines]).communicate(timeout=120)
        answers, limits = json.loads(out)
        return answers, tuple(limits)

    def ask(self, place: Place, memlock: int = 0) -> tuple[dict[str, Any], tuple[int, int]]:
        answers, limits = self.say(place, request(memlock))
        return answers[0], limits

    def refused(self, place: Place, memlock: int = 0) -> str:
        answer, _limits = self.ask(place, memlock)
        return " ".join(answer["fault"].values())


def make(place: Path, minor: int) -> None:
    """Make a character device that harms nobody (major 1)."""
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, minor))


class Yard:
    """The host and its server; `jail` makes a container."""

    def __init__(self, base: Path) -> None:
        base.chmod(0o755)
        self.base = base
        self.host = FakeHost(base / "host")
        shutil.rmtree(self.host.base / "proc")
        (self.host.base / "proc").symlink_to("/proc")
        (self.host.base / "sys/fs").mkdir()
        (self.host.base / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
        for name, minor in NODES.items():
            make(self.host.base / "dev" / name, minor)
        self.gpu = self.place("gpu", "16", ["/dev/vfio/16"], ["/dev/vfio/devices/vfio0"], vfio=True)
        self.mdev = self.place("vgpu", "0c1a", ["/dev/vfio/20"], vfio=True)
        self.usb = self.place("key", "1-4", ["/dev/bus/usb/001/004"])
        self.kvm = self.place("kvm", "all", ["/dev/kvm"])
        self.iommufd = self.place("iommufd", "all", ["/dev/iommu"])
        self.places = [self.gpu, self.mdev, self.usb, self.kvm, self.iommufd]
        self.before = self.states()
        self.start()

    def place(self, name: str, unit: str, required: Sequence[str], optional: Sequence[str] = (), *, vfio: bool = False) -> Place:
        folder = str(self.base / "g" / f"EXAMPLE_COM_{name.upper()}" / unit)
        return Place(f"example.com/{name}", unit, folder, tuple(required), tuple(optional), vfio)

    def start(self) -> None:
        self.server = GrantServer(self.host.root)
        assert self.server.serve(self.places) == {}

    def jail(self, *places: Place, **given: Any) -> Jail:
        """Return a container that was given units, without any node yet."""
        jail = Jail(Path(tempfile.mkdtemp(dir=self.base, prefix="j")), **given)
        jail.top.chmod(0o755)
        for place in places:
            jail.give(place)
        return jail

    def states(self) -> dict[str, tuple[int, int, int]]:
        """Return owner, group and mode of the host's nodes."""
        found = {name: (self.host.base / "dev" / name).stat() for name in NODES}
        return {name: (state.st_uid, state.st_gid, state.st_mode) for name, state in found.items()}

    def check(self) -> None:
        """The server lives, and nothing of the host was changed."""
        jail = self.jail(self.usb)
        node = jail.node("bus/usb/001/004")
        assert jail.ask(self.usb)[0] == {"memlock_bytes": 0, "nodes": ["/dev/bus/usb/001/004"]}
        assert owner(node) == (107, 107)
        assert self.states() == self.before


def owner(place: Path) -> tuple[int, int]:
    state = place.lstat()
    return state.st_uid, state.st_gid


@contextmanager
def made_yard() -> Iterator[Yard]:
    """Make a yard, and look at its end whether it is as it was."""
    base = Path(tempfile.mkdtemp(prefix="vfp-g-"))
    yard = Yard(base)
    try:
        yield yard
        yard.check()
    finally:
        yard.server.stop()
        shutil.rmtree(base)

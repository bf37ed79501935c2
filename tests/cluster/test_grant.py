"""The grant socket with peers in namespaces of their own: what they get, and what they do not. Needs root, no cluster."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import Unit
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.pci import VFIO_PCI, Function
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import Offer, group_nodes
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import GrantServer
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

# runs in a mount namespace of its own: the unit's folder is mounted into a jail, which becomes its root
CLIENT = """
import json, os, resource, socket, subprocess, sys
jail, folder, bind, uid, request, soft = sys.argv[1:]
if bind == "mount":
    os.makedirs(jail + folder)
    subprocess.run(["mount", "--bind", folder, jail + folder], check=True)
else:
    os.makedirs(jail + folder)
    os.link(folder + "/grant.sock", jail + folder + "/grant.sock")
hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
if int(soft):
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (int(soft), hard))
os.chroot(jail)
os.chdir("/")
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
made = socket.socket(socket.AF_UNIX)
made.connect(folder + "/grant.sock")
made.sendall(request.encode() + b"\\n")
answer = json.loads(made.makefile("rb").readline())
print(json.dumps([answer, resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]]))
"""
REQUEST = {"version": 1, "memlock_bytes": 0}


class Yard:
    """A made host with one unit, its grant server, and a jail that looks like a container's root."""

    def __init__(self, base: Path) -> None:
        self.host = FakeHost(base / "host")
        shutil.rmtree(self.host.base / "proc")
        (self.host.base / "proc").symlink_to("/proc")
        (self.host.base / "sys/fs").mkdir()
        (self.host.base / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
        self.jail = base / "jail"
        (self.jail / "dev/vfio").mkdir(parents=True)
        unit = Unit("example.com/gpu", "16", Function(Address.parse("0000:01:00.0"), "10de", "2684", "030000", driver=VFIO_PCI))
        self.server = GrantServer(self.host.root, str(base / "g"))
        for name, minor in (("16", 3), ("vfio", 7)):
            self.make(self.host.base / "dev/vfio" / name, minor)
        self.server.serve([Offer(unit, group_nodes(unit))])
        self.folder = str(base / "g/EXAMPLE_COM_GPU/16")

    @staticmethod
    def make(place: Path, minor: int) -> None:
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, minor))

    def node(self, name: str, minor: int = 3) -> Path:
        place = self.jail / "dev/vfio" / name
        self.make(place, minor)
        return place

    def ask(self, request: dict[str, Any] | None = None, uid: int = 107, bind: str = "mount", soft: int = 0) -> tuple[dict[str, Any], int]:
        command = ["unshare", "--mount", sys.executable, "-c", CLIENT, str(self.jail), self.folder, bind, str(uid)]
        done = subprocess.run(
            [*command, json.dumps(request or REQUEST), str(soft)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        answer, limit = json.loads(done.stdout)
        return answer, limit

    def refused(self, **options: Any) -> str:
        answer, _limit = self.ask(**options)
        return " ".join(answer["fault"].values())


@pytest.fixture(name="yard")
def _yard() -> Iterator[Yard]:
    base = Path(tempfile.mkdtemp(prefix="vfp-g-"))
    yard = Yard(base)
    yield yard
    yard.server.stop()
    shutil.rmtree(base)


def test_the_peer_becomes_owner_of_its_own_node(yard: Yard) -> None:
    node, control = yard.node("16"), yard.node("vfio", 7)
    answer, _limit = yard.ask()
    assert answer == {"memlock_bytes": 0, "nodes": ["/dev/vfio/16"]}
    assert (node.stat().st_uid, node.stat().st_gid) == (107, 107)
    assert (control.stat().st_uid, control.stat().st_mode & 0o777) == (0, 0o666)
    assert (yard.host.base / "dev/vfio/16").stat().st_uid == 0


def test_a_link_is_not_followed(yard: Yard) -> None:
    victim = yard.jail / "dev/null"
    yard.make(victim, 3)
    (yard.jail / "dev/vfio/16").symlink_to("/dev/null")
    assert "links are not followed" in yard.refused()
    assert victim.stat().st_uid == 0


def test_a_linked_folder_is_not_followed(yard: Yard) -> None:
    (yard.jail / "elsewhere").mkdir()
    yard.make(yard.jail / "elsewhere/16", 3)
    (yard.jail / "dev/vfio").rmdir()
    (yard.jail / "dev/vfio").symlink_to("/elsewhere")
    assert "links are not followed" in yard.refused()
    assert (yard.jail / "elsewhere/16").stat().st_uid == 0


def test_another_device_under_the_nodes_name_is_refused(yard: Yard) -> None:
    node = yard.node("16", 5)
    assert "device 1:5, the host's node is 1:3" in yard.refused()
    assert node.stat().st_uid == 0


def test_a_file_is_refused(yard: Yard) -> None:
    (yard.jail / "dev/vfio/16").write_text("", encoding="ascii")
    assert "no character device" in yard.refused()


def test_the_hosts_own_node_is_never_changed(yard: Yard) -> None:
    os.link(yard.host.base / "dev/vfio/16", yard.jail / "dev/vfio/16")
    assert "the host's own node" in yard.refused()
    assert (yard.host.base / "dev/vfio/16").stat().st_uid == 0


def test_nothing_is_changed_when_one_node_is_wrong(yard: Yard) -> None:
    node = yard.node("16")
    yard.node("vfio", 5)
    assert "device 1:5" in yard.refused()
    assert node.stat().st_uid == 0


def test_a_container_without_the_node_is_told_so(yard: Yard) -> None:
    assert "no such node" in yard.refused()


def test_the_limit_is_raised_to_what_is_asked_and_never_lowered(yard: Yard) -> None:
    yard.node("16")
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    answer, limit = yard.ask({"version": 1, "memlock_bytes": 65536}, uid=0, soft=4096)
    assert limit == hard
    assert answer["memlock_bytes"] == (2**63 - 1 if hard == resource.RLIM_INFINITY else hard)


def test_more_than_memory_and_units_justify_is_refused(yard: Yard) -> None:
    node = yard.node("16")
    text = yard.refused(request={"version": 1, "memlock_bytes": 1 << 55})
    assert "x 1 granted devices + 1 GiB" in text
    assert node.stat().st_uid == 0


def test_a_socket_without_its_mount_justifies_a_gibibyte_only(yard: Yard) -> None:
    yard.node("16")
    assert "x 0 granted devices" in yard.refused(request={"version": 1, "memlock_bytes": (1 << 30) + 1}, bind="link")

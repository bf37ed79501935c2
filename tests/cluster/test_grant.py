"""The grant socket with peers in namespaces of their own: what they get, of every kind. Needs root, no cluster."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.yard import ENTER, NODES, Yard, made_yard, owner, request

GIB = 1 << 30
# a service without the right to raise hard limits, as it is in a container of a native node
WEAK = """
import json, sys
from pathlib import Path
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import GrantServer, Place
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
server = GrantServer(Root(Path(sys.argv[1])))
print(server.serve([Place(**json.loads(sys.argv[2]))]), flush=True)
sys.stdin.read()
server.stop()
"""
# asks when it is told to, for as long as it is told to
ASK_ON = (
    ENTER
    + """
for line in sys.stdin:
    made = connect()
    made.sendall(line.encode())
    print(json.dumps(answer(made)), flush=True)
"""
)


@pytest.fixture(name="yard")
def _yard() -> Iterator[Yard]:
    with made_yard() as yard:
        yield yard


def test_the_peer_becomes_owner_of_its_own_nodes(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    nodes = [jail.node(name) for name in ("vfio/16", "vfio/devices/vfio0", "iommu")]
    control = jail.node("vfio/vfio")
    answer, _limits = jail.ask(yard.gpu)
    assert answer == {"memlock_bytes": 0, "nodes": ["/dev/vfio/16", "/dev/vfio/devices/vfio0", "/dev/iommu"]}
    assert [owner(node) for node in nodes] == [(107, 107)] * 3
    assert (owner(control), control.stat().st_mode & 0o777) == ((0, 0), 0o666)


def test_nodes_that_a_container_need_not_have_may_be_absent(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    jail.node("vfio/16")
    assert jail.ask(yard.gpu)[0] == {"memlock_bytes": 0, "nodes": ["/dev/vfio/16"]}


@pytest.mark.parametrize(("kind", "node"), [("mdev", "vfio/20"), ("usb", "bus/usb/001/004"), ("kvm", "kvm"), ("iommufd", "iommu")])
def test_every_kind_has_its_nodes(yard: Yard, kind: str, node: str) -> None:
    place = getattr(yard, kind)
    jail = yard.jail(place)
    made = jail.node(node)
    assert jail.ask(place)[0] == {"memlock_bytes": 0, "nodes": [f"/dev/{node}"]}
    assert owner(made) == (107, 107)


@pytest.mark.parametrize("kind", ["usb", "kvm"])
def test_vfios_nodes_are_no_business_of_other_kinds(yard: Yard, kind: str) -> None:
    place = getattr(yard, kind)
    jail = yard.jail(place)
    jail.node(place.required[0].removeprefix("/dev/"))
    others = [jail.node("vfio/vfio"), jail.node("iommu", NODES["kvm"])]
    assert jail.ask(place)[0]["nodes"] == list(place.required)
    assert [(owner(other), other.stat().st_mode & 0o777) for other in others] == [((0, 0), 0o600)] * 2


def test_containers_that_share_a_folder_get_each_its_own_node(yard: Yard) -> None:
    jails = [yard.jail(yard.kvm, uid=uid) for uid in (107, 1000)]
    nodes = [jail.node("kvm") for jail in jails]
    for jail in jails:
        assert jail.ask(yard.kvm)[0]["nodes"] == ["/dev/kvm"]
    assert [owner(node) for node in nodes] == [(107, 107), (1000, 1000)]


def test_a_container_with_users_of_its_own_owns_the_node_as_the_host_numbers_it(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, users=True)
    node = jail.node("vfio/16")
    assert jail.ask(yard.gpu)[0]["nodes"] == ["/dev/vfio/16"]
    assert owner(node) == (107, 107)


def test_the_limit_is_raised_to_what_is_asked_soft_like_hard_and_never_lowered(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, uid=0, limits=(4096, 65536))
    jail.node("vfio/16")
    assert jail.ask(yard.gpu, 65536) == ({"memlock_bytes": 65536, "nodes": ["/dev/vfio/16"]}, (65536, 65536))
    assert jail.ask(yard.gpu, 8192)[1] == (65536, 65536)
    assert jail.ask(yard.gpu, 0)[1] == (4096, 65536)


def test_what_holds_already_is_not_asked_of_the_system(yard: Yard) -> None:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    jail = yard.jail(yard.gpu, limits=(hard, hard))
    jail.node("vfio/16")
    assert jail.ask(yard.gpu, 65536)[0]["memlock_bytes"] == (2**63 - 1 if hard == resource.RLIM_INFINITY else hard)


def test_the_systems_refusal_names_the_hard_limit(yard: Yard) -> None:
    place = yard.place("weak", "1", ["/dev/vfio/16"], vfio=True)
    fields = asdict(place)
    command = ["setpriv", "--bounding-set=-sys_resource", sys.executable, "-c", WEAK, str(yard.host.base), json.dumps(fields)]
    service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    assert service.stdout.readline() == "{}\n"
    jail = yard.jail(place, limits=(4096, 65536))
    node = jail.node("vfio/16")
    text = jail.refused(place, 1 << 20)
    assert "its hard limit is 65536 bytes" in text
    assert "CAP_SYS_RESOURCE" in text
    assert owner(node) == (0, 0)
    service.communicate(timeout=60)


def test_more_than_memory_and_units_justify_is_refused(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    node = jail.node("vfio/16")
    assert "x 1 granted devices + 1 GiB" in jail.refused(yard.gpu, 1 << 55)
    assert owner(node) == (0, 0)


def test_only_vfio_units_among_the_mounts_justify_memory(yard: Yard) -> None:
    jail = yard.jail(yard.gpu, yard.mdev, yard.usb, yard.kvm, yard.iommufd)
    jail.node("kvm")
    assert "x 2 granted devices + 1 GiB" in jail.refused(yard.kvm, 1 << 55)
    other = yard.jail(yard.usb, yard.kvm)
    other.node("kvm")
    assert "x 0 granted devices + 1 GiB" in other.refused(yard.kvm, GIB + 1)


def test_where_selinux_is_on_folders_and_sockets_are_containers_own(yard: Yard) -> None:
    yard.host.write("/sys/fs/selinux/enforce", "1")
    place = yard.place("labelled", "1", ["/dev/kvm"])
    assert yard.server.serve([place]) == {}
    for path in (place.folder, f"{place.folder}/grant.sock"):
        assert os.getxattr(path, "security.selinux").rstrip(b"\0") == b"system_u:object_r:container_file_t:s0"


def test_a_restart_of_the_service_leaves_a_running_container_its_folder(yard: Yard) -> None:
    jail = yard.jail(yard.gpu)
    jail.node("vfio/16")
    process = jail.start(yard.gpu.folder, ASK_ON)
    assert process.stdin is not None and process.stdout is not None

    def ask() -> list[str]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(request().decode())
        process.stdin.flush()
        return list(json.loads(process.stdout.readline())["nodes"])

    assert ask() == ["/dev/vfio/16"]
    yard.server.stop()
    yard.start()
    assert ask() == ["/dev/vfio/16"]
    # the socket of a service that was killed stands there still
    os.unlink(Path(yard.gpu.folder, "grant.sock"))
    os.mknod(Path(yard.gpu.folder, "grant.sock"), 0o666)
    yard.server.serve(yard.places)
    assert ask() == ["/dev/vfio/16"]
    process.communicate(timeout=60)

"""The device plugin on a real kubelet, over a made host whose nodes are real character devices."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.holders import ask_holders
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev import cli
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import released
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import Former, Record, write_record
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.ledger import read_ledger
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

RESOURCE = "example.com/gpu"
VARIABLE = "PCI_RESOURCE_EXAMPLE_COM_GPU"
PROGRAM = """
import logging, sys
from pathlib import Path
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import run
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
logging.basicConfig(level=logging.INFO, format="%(message)s")
base, folder = sys.argv[1:]
options = PluginOptions(
    plugin_folder=folder, run_folder=base + "/run", config=base + "/etc/devices.json", grants=base + "/g", host_prefix=base
)
raise SystemExit(run(Root(Path(base)), options))
"""

# a process that enters a container's mount namespace as its user, and asks there
PEER = """
import ctypes, os, socket, sys
pid, path = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(os.open("/proc/" + pid + "/ns/mnt", os.O_RDONLY), 0x20000):
    raise OSError(ctypes.get_errno(), "setns")
os.setgroups([])
os.setgid(107)
os.setuid(107)
made = socket.socket(socket.AF_UNIX)
made.connect(path)
made.sendall(b'{"version":1,"memlock_bytes":0}\\n')
print(made.makefile("r").readline())
"""


def wait_until(what: str, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    limit = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.1)


@dataclass
class Plugin:
    """The service as a process of its own."""

    host: FakeHost
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.host.base / "plugin.log"

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.host.base), str(self.folder)], stdout=out, stderr=out)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)

    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.host.base / "run/devices.json").read_text()))


def make_node(host: FakeHost, name: str, minor: int) -> None:
    place = host.base / "dev/vfio" / name
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, minor))


@pytest.fixture(name="plugin", scope="module")
def _plugin(native_node: NativeNode) -> Iterator[Plugin]:
    base = Path(tempfile.mkdtemp(prefix="vfp-"))
    host = FakeHost(base)
    shutil.rmtree(base / "proc")
    (base / "proc").symlink_to("/proc")
    (base / "sys/fs").mkdir()
    (base / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
    for bus, group, minor in (("01", "16", 3), ("02", "17", 5)):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group, files={"numa_node": "0\n"})
        host.function(f"0000:{bus}:00.1", "10de:22ba", "040300", driver="vfio-pci", group=group)
        make_node(host, group, minor)
    make_node(host, "vfio", 7)
    host.write("/etc/devices.json", json.dumps({"devices": [{"resource": RESOURCE, "select": {"id": "10de:2684"}, "functions": "all"}]}))
    plugin = Plugin(host, native_node.device_plugins)
    plugin.start()
    yield plugin
    code = plugin.stop()
    text = plugin.log.read_text()
    shutil.rmtree(base)
    assert code == 0, text


def counts(plane: ControlPlane, node: NativeNode) -> tuple[str, str]:
    status = plane.get("node", node.name)["status"]
    return status["capacity"].get(RESOURCE, ""), status["allocatable"].get(RESOURCE, "")


def run_pod(plane: ControlPlane, node: NativeNode, name: str, command: list[str], amount: str = "1") -> str:
    """Return what a pod wrote. A kubelet that has just started may refuse it for good; a controller would make another, and so do we."""
    limit = time.monotonic() + 60
    while True:
        plane.apply(pod(name, command, resources={RESOURCE: amount}, node=node.name, user=107))
        found = wait_for_phase(plane, name, "Succeeded", "Failed")
        text = node.pod_log("default", name, "main")
        plane.kubectl("delete", "pod", name, "--wait=true")
        if found["status"]["phase"] == "Succeeded":
            return text
        assert time.monotonic() < limit, found["status"]
        time.sleep(1)


def test_a_resource_becomes_allocatable(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    wait_until("registered in the state file", lambda: plugin.state()["resources"][0]["registered"])


def test_a_pod_gets_variables_nodes_and_grant_folders(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    text = run_pod(control_plane, native_node, "gets", ["sh", "-c", f"env; ls -ln /dev/vfio; find {plugin.host.base}/g"], "2")
    assert set(next(line for line in text.splitlines() if line.startswith(VARIABLE)).split("=")[1].split(",")) == {
        "0000:01:00.0",
        "0000:02:00.0",
    }
    assert "0000:01:00.0=0000:01:00.1" in text
    for node in ("vfio", "16", "17"):
        assert f" {node}\n" in text
    for group in ("16", "17"):
        assert f"{plugin.host.base}/g/EXAMPLE_COM_GPU/{group}/grant.sock" in text


def test_a_container_is_granted_its_own_node(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    control_plane.apply(pod("granted", ["sleep", "1000"], resources={RESOURCE: "1"}, node=native_node.name, user=107))
    wait_for_phase(control_plane, "granted", "Running")
    grants = plugin.host.base / "g/EXAMPLE_COM_GPU"
    pid = container_pid("sleep 1000")
    (group,) = [one.name for one in Path(f"/proc/{pid}/root{grants}").iterdir()]
    done = subprocess.run([sys.executable, "-c", PEER, pid, f"{grants}/{group}/grant.sock"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"memlock_bytes": 0, "nodes": [f"/dev/vfio/{group}"]}
    inside = Path(f"/proc/{pid}/root/dev/vfio")
    assert ((inside / group).stat().st_uid, (inside / "vfio").stat().st_mode & 0o777) == (107, 0o666)
    assert (plugin.host.base / "dev/vfio" / group).stat().st_uid == 0
    control_plane.kubectl("delete", "pod", "granted", "--wait=true")


def container_pid(command: str) -> str:
    """Return the process of this command that runs as the pods' user."""
    users = [one for one in Path("/proc").iterdir() if one.name.isdigit() and one.stat().st_uid == 107]
    for folder in users:
        if (folder / "cmdline").read_text(encoding="utf-8").rstrip("\0").replace("\0", " ") == command:
            return folder.name
    raise AssertionError(f"no process of {command!r}")


def test_a_kubelet_restart_is_followed(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    before = plugin.log.read_text().count("registered with the kubelet")
    native_node.restart_kubelet()
    wait_until("registered again", lambda: plugin.log.read_text().count("registered with the kubelet") > before)
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    assert VARIABLE in run_pod(control_plane, native_node, "after-kubelet", ["env"])


def test_a_plugin_restart_is_taken_up(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    assert plugin.stop() == 0
    assert not [one for one in native_node.device_plugins.iterdir() if one.name.startswith(("vfio-passthrough", ".vfio"))]
    wait_until("none allocatable", lambda: counts(control_plane, native_node)[1] == "0")
    plugin.start()
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))


def test_a_node_that_goes_and_returns(plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    for group in ("16", "17"):
        (plugin.host.base / "dev/vfio" / group).unlink()
    wait_until("none allocatable", lambda: counts(control_plane, native_node) == ("2", "0"))
    wait_until("why", lambda: all("does not exist" in unit["reason"] for unit in plugin.state()["units"]))
    make_node(plugin.host, "16", 3)
    make_node(plugin.host, "17", 5)
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))


def test_the_ledger_tells_what_may_be_given_and_who_holds_what(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    folders = (str(native_node.kubelet_folder), str(native_node.device_plugins))
    control_plane.apply(pod("holds", ["sleep", "1000"], resources={RESOURCE: "1"}, node=native_node.name, user=107))
    wait_for_phase(control_plane, "holds", "Running")
    told = read_ledger(Root(), *folders)
    control_plane.kubectl("delete", "pod", "holds", "--wait=true", "--grace-period=1")
    assert told.allocatable[RESOURCE] == {"16", "17"}
    (held,) = told.holders(RESOURCE)
    address = {"16": "0000:01:00.0", "17": "0000:02:00.0"}[held.id]
    assert (held.owner, held.container, held.values) == ("default/holds", "main", (address,))
    assert f"{plugin.host.base}/dev/vfio/{held.id}" in held.nodes
    assert read_ledger(Root(), *folders).holders(RESOURCE) == ()


@pytest.mark.usefixtures("plugin")
def test_a_pod_that_ended_holds_nothing_though_it_is_not_deleted(control_plane: ControlPlane, native_node: NativeNode) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    control_plane.apply(pod("ends", ["true"], resources={RESOURCE: "2"}, node=native_node.name, user=107))
    wait_for_phase(control_plane, "ends", "Succeeded")
    folders = (str(native_node.kubelet_folder), str(native_node.device_plugins))
    wait_until("nobody holds anything", lambda: read_ledger(Root(), *folders).holders(RESOURCE) == ())
    control_plane.kubectl("delete", "pod", "ends", "--wait=true")


def regroup(host: FakeHost, bus: str, before: str, after: str) -> None:
    """Give a card's functions another group number, as another boot may."""
    groups = host.base / "sys/kernel/iommu_groups"
    (groups / before).rename(groups / after)
    for function in range(2):
        link = host.folder_of(f"0000:{bus}:00.{function}") / "iommu_group"
        link.unlink()
        link.symlink_to(os.path.relpath(groups / after, link.parent))
    (host.base / "dev/vfio" / before).rename(host.base / "dev/vfio" / after)


def test_b30_groups_that_changed_their_numbers_are_told_from_the_kubelets_own_store(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    control_plane.apply(pod("stale", ["sleep", "1000"], resources={RESOURCE: "1"}, node=native_node.name, user=107))
    wait_for_phase(control_plane, "stale", "Running")
    (held,) = read_ledger(Root(), str(native_node.kubelet_folder), str(native_node.device_plugins)).holders(RESOURCE)
    bus = {"16": "01", "17": "02"}[held.id]
    assert plugin.stop() == 0
    regroup(plugin.host, bus, held.id, "28")
    plugin.start()
    (told,) = wait_until("the state tells it", lambda: state_if_there(plugin).get("renumbered"))
    uid = control_plane.get("pod", "stale")["metadata"]["uid"]
    assert (told["pod_uid"], told["container"], told["ids"], told["values"]) == (uid, "main", [held.id], [f"0000:{bus}:00.0"])
    assert f"0000:{bus}:00.0 is unit 28 now" in told["detail"]
    assert f"renumbered: unit {held.id} was 0000:{bus}:00.0" in plugin.log.read_text()
    control_plane.kubectl("delete", "pod", "stale", "--wait=true", "--grace-period=1")
    assert plugin.stop() == 0
    regroup(plugin.host, bus, "28", held.id)
    plugin.start()
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))


def state_if_there(plugin: Plugin) -> dict[str, Any]:
    return plugin.state() if (plugin.host.base / "run/devices.json").exists() else {}


def test_a_release_leaves_a_device_to_the_pod_that_the_kubelet_names(
    plugin: Plugin, control_plane: ControlPlane, native_node: NativeNode
) -> None:
    wait_until("two units", lambda: counts(control_plane, native_node) == ("2", "2"))
    control_plane.apply(pod("keeps", ["sleep", "1000"], resources={RESOURCE: "2"}, node=native_node.name, user=107))
    wait_for_phase(control_plane, "keeps", "Running")
    functions = {f"0000:{bus}:00.0": Former("10de:2684", "nvidia", resource=RESOURCE) for bus in ("01", "02")}
    write_record(plugin.host.root, Record(functions))
    node = Root(runner=program)
    asked = ask_holders(node, str(native_node.kubelet_folder))
    plan = released.plan_released(plugin.host.root, lambda: asked)
    with pytest.raises(Busy) as caught:
        released.check_released(plan)
    for bus, group in (("01", "16"), ("02", "17")):
        assert f"pod default/keeps holds 0000:{bus}:00.0 (unit {group} of {RESOURCE})" in caught.value.cause
    released.check_released(plan, force=True)
    control_plane.kubectl("delete", "pod", "keeps", "--wait=true", "--grace-period=1")
    plan = released.plan_released(plugin.host.root, lambda: ask_holders(node, str(native_node.kubelet_folder)))
    assert (plan.held, plan.unasked) == ((), "")
    write_record(plugin.host.root, Record())


def program(command: Sequence[str], timeout: float) -> Done:
    """Run the node's program from this tree."""
    done = subprocess.run([sys.executable, "-m", cli.__name__, *command[1:]], capture_output=True, text=True, timeout=timeout, check=False)
    return Done(done.returncode, done.stdout, done.stderr)

"""The device plugin as a DaemonSet: the role's own runs on a real kubelet, whose host has two made GPUs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.files.image.archive import names_in
from ansible_collections.vfio.passthrough.tests.cluster import images
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import wait_until
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.cluster.stage import Stage, made_stage

RUNTIME = Path(__file__).resolve().parents[2] / "plugins/module_utils/hostdev"
GPU, SOUND = "example.com/card", "example.com/sound"
DECLARED = [{"resource": GPU, "select": {"id": "10de:2684"}}]
MORE = [*DECLARED, {"resource": SOUND, "select": {"id": "10de:9999"}}]
LABEL = "vfio-passthrough/device-plugin"
UNIT = "vfio-passthrough-device-plugin.service"
NEXT = "localhost/vfio-passthrough-device-plugin:next"

# finds the holder's process in the node, enters its mount namespace as its user, and asks there
PEER = """
import ctypes, json, os, pathlib, socket, sys
def is_holder(one):
    try:
        return one.name.isdigit() and one.stat().st_uid == 107 and (one / "cmdline").read_bytes() == b"sleep\\0002000\\0"
    except OSError:
        return False
pid = next(one.name for one in pathlib.Path("/proc").iterdir() if is_holder(one))
variables = pathlib.Path("/proc/" + pid + "/environ").read_text().split("\\0")
if ctypes.CDLL(None).setns(os.open("/proc/" + pid + "/ns/mnt", os.O_RDONLY), 0x20000):
    raise OSError("setns")
(group,) = os.listdir("/run/vfio-passthrough/grant/EXAMPLE_COM_CARD")
os.setgroups([])
os.setgid(107)
os.setuid(107)
made = socket.socket(socket.AF_UNIX)
made.connect("/run/vfio-passthrough/grant/EXAMPLE_COM_CARD/" + group + "/grant.sock")
made.sendall(b'{"version":1,"memlock_bytes":0}\\n')
answer = json.loads(made.makefile("r").readline())
owner = os.stat("/dev/vfio/" + group).st_uid
print(json.dumps({"answer": answer, "group": group, "owner": owner, "variables": variables}))
"""


@pytest.fixture(name="stage", scope="module")
def _stage(control_plane: ControlPlane, native_node: NativeNode) -> Iterator[Stage]:
    archive = images.plugin_image(RUNTIME)
    with made_stage(control_plane, native_node) as stage:
        stage.variables |= {"devices": DECLARED, "archive": str(archive), "image": names_in(archive)[0]}
        yield stage
        if instances(stage):
            # a test has failed; the node goes on without the plugin
            stage.play(state="absent")


def counts(stage: Stage, resource: str = GPU) -> tuple[str, str]:
    status = stage.plane.get("node", stage.node.name)["status"]
    return status["capacity"].get(resource, ""), status["allocatable"].get(resource, "")


def instances(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.plane.get(
        "pods", "-n", "kube-system", "-l", "app.kubernetes.io/name=vfio-passthrough-device-plugin"
    )["items"]
    return found


def instance(stage: Stage) -> tuple[str, str, int]:
    """Return uid, image and restarts of the one instance."""
    (one,) = instances(stage)
    (container,) = one["status"]["containerStatuses"]
    return one["metadata"]["uid"], one["spec"]["containers"][0]["image"], container["restartCount"]


def made(stage: Stage) -> int:
    """Return how many instances were ever made."""
    events = stage.plane.get("events", "-n", "kube-system", "--field-selector", "reason=SuccessfulCreate")["items"]
    return sum(one.get("count") or 1 for one in events if one["involvedObject"]["name"] == "vfio-passthrough-device-plugin")


def ask(stage: Stage) -> dict[str, Any]:
    """Return what the holder's process is granted, and what it has then."""
    told: dict[str, Any] = json.loads(stage.run(sys.executable, "-c", PEER))
    return told


def left_over(stage: Stage) -> list[str]:
    where = ("/etc", "/run/vfio-passthrough", "/var/lib/vfio-passthrough", str(Path("/var/lib/kubelet/device-plugins")))
    found = stage.run("find", *where, "-name", "*vfio-passthrough*", "-o", "-path", "/run/vfio-passthrough/*", check=False).split()
    return [one for one in found if one != "/run/vfio-passthrough"]


def test_a_check_run_shows_the_daemonset_and_makes_nothing(stage: Stage) -> None:
    play = stage.play("--check", "--diff")
    assert play.code == 0, play.out
    for word in ("system-node-critical", '"on_node": true', '"10de:2684"'):
        assert word in play.out
    assert (instances(stage), left_over(stage)) == ([], [])
    assert stage.plane.kubectl("get", "daemonsets", "-A", "-o", "name") == ""
    assert LABEL not in stage.plane.get("node", stage.node.name)["metadata"]["labels"]


def test_the_nodes_pod_advertises_its_devices_and_nothing_changes_again(stage: Stage) -> None:
    play = stage.play()
    assert play.code == 0, play.out
    wait_until("two units", lambda: counts(stage) == ("2", "2"))
    uid, image, restarts = instance(stage)
    assert (image, restarts) == (stage.variables["image"], 0)
    again = stage.play("--diff")
    assert (again.code, again.changed) == (0, 0), again.out
    assert instance(stage) == (uid, image, 0)


def test_the_plugin_has_no_more_rights_than_it_needs(stage: Stage) -> None:
    status = stage.run("sh", "-c", "cat /proc/$(pgrep -f 'hostdev[ ]device-plugin|device-plugin --plugin-folder' | head -1)/status")
    told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # CHOWN, DAC_READ_SEARCH, FOWNER, SYS_PTRACE, and where the machine's root has it SYS_RESOURCE
    assert int(told["CapEff"], 16) & ~(1 << 24) == 1 | 1 << 2 | 1 << 3 | 1 << 19
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    # the annotation of old reaches the field of today
    (one,) = instances(stage)
    assert one["spec"]["containers"][0]["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}


def test_a_pod_gets_its_device_and_the_grant_of_its_node(stage: Stage) -> None:
    stage.plane.apply(pod("holder", ["sleep", "2000"], resources={GPU: "1"}, node=stage.node.name, user=107))
    wait_for_phase(stage.plane, "holder", "Running")
    told = ask(stage)
    address = {"16": "0000:01:00.0", "17": "0000:02:00.0"}[told["group"]]
    assert f"PCI_RESOURCE_EXAMPLE_COM_CARD={address}" in told["variables"]
    assert told["answer"] == {"memlock_bytes": 0, "nodes": [f"/dev/vfio/{told['group']}"]}
    assert told["owner"] == 107
    assert (stage.base / "dev/vfio" / told["group"]).stat().st_uid == 0


def test_a_changed_declaration_is_followed_without_a_restart(stage: Stage) -> None:
    before = instance(stage)
    play = stage.play(devices=MORE)
    assert play.code == 0, play.out
    wait_until("the new resource", lambda: counts(stage, SOUND) == ("0", "0"))
    assert (instance(stage), counts(stage)) == (before, ("2", "2"))


def test_an_update_restarts_it_once_and_the_holder_notices_nothing(stage: Stage) -> None:
    before, number = instance(stage), made(stage)
    archive = images.plugin_image(RUNTIME, NEXT)
    stage.variables |= {"archive": str(archive), "image": NEXT}
    play = stage.play()
    assert play.code == 0, play.out
    after = instance(stage)
    assert (after[0] != before[0], *after[1:]) == (True, NEXT, 0)
    wait_until("two units", lambda: counts(stage) == ("2", "2"))
    assert (len(instances(stage)), made(stage)) == (1, number + 1)
    told = ask(stage)
    assert told["answer"] == {"memlock_bytes": 0, "nodes": [f"/dev/vfio/{told['group']}"]}


def service(stage: Stage) -> list[str]:
    """Return what the node's service manager says of the plugin's service, and whether its unit is there."""
    return [*stage.run(str(stage.base / "bin/systemctl"), "show", UNIT).split(), *stage.run("find", "/etc/systemd", "-name", UNIT).split()]


def test_the_forms_change_over_and_the_holder_notices_nothing(stage: Stage) -> None:
    for form, running in (("systemd", "active"), ("daemonset", "inactive")):
        play = stage.play(form=form)
        assert play.code == 0, play.out
        assert (f"ActiveState={running}" in service(stage), len(instances(stage))) == (True, int(form == "daemonset"))
        wait_until("two units", lambda: counts(stage) == ("2", "2"))
        told = ask(stage)
        assert told["answer"] == {"memlock_bytes": 0, "nodes": [f"/dev/vfio/{told['group']}"]}
        again = stage.play(form=form)
        assert (again.code, again.changed) == (0, 0), again.out
    # the former one had gone each time: one that finds another ends at once, saying so
    assert "another instance runs" not in (stage.base / f"services/{UNIT}.log").read_text(encoding="utf-8")
    assert service(stage) == ["LoadState=not-found", "ActiveState=inactive", "UnitFileState=disabled"]
    assert stage.run("ls", "/etc/vfio-passthrough").split() == ["daemonset", "devices.json"]


def test_undone_nothing_is_allocatable_and_nothing_is_left(stage: Stage) -> None:
    (container,) = stage.plane.get("pod", "holder")["status"]["containerStatuses"]
    assert ("running" in container["state"], container["restartCount"]) == (True, 0)
    stage.plane.kubectl("delete", "pod", "holder", "--wait=true", "--grace-period=1")
    told = stage.play("--check", state="absent")
    assert (told.code, len(instances(stage)), counts(stage)) == (0, 1, ("2", "2")), told.out
    play = stage.play(state="absent")
    assert play.code == 0, play.out
    assert instances(stage) == []
    wait_until("nothing allocatable", lambda: counts(stage) == ("0", "0"))
    assert stage.plane.kubectl("get", "daemonsets", "-A", "-o", "name") == ""
    assert LABEL not in stage.plane.get("node", stage.node.name)["metadata"]["labels"]
    assert (left_over(stage), stage.run(*stage.variables["ctr"], "images", "ls", "-q").count("device-plugin")) == ([], 0)
    again = stage.play(state="absent")
    assert (again.code, again.changed) == (0, 0), again.out

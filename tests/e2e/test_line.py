"""End to end: the demo's own steps, and what a user may do wrong on the way. The tests follow each other on one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase
from ansible_collections.vfio.passthrough.tests.e2e import steps
from ansible_collections.vfio.passthrough.tests.e2e.line import DECLARATION, GPUS, RESOURCE, Line, start
from ansible_collections.vfio.passthrough.tests.vm.machine import NAME


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with ControlPlane() as plane:
        made = start(tmp_path_factory.mktemp("line"), plane)
        with made.worker:
            yield made


@pytest.fixture(scope="module")
def before(line: Line) -> steps.Before:
    return steps.look(line)


def test_a_check_run_shows_what_would_change_and_changes_nothing(line: Line, before: steps.Before) -> None:
    play = line.site("--check", "--diff")
    assert play.code == 0, play.out[-3000:]
    assert "zz-vfio-passthrough.cfg" in play.out
    assert '"0000:01:00.0"' in play.out
    assert "vfio-passthrough-device-plugin.service" in play.out
    assert (line.files(), line.left_over()) == (before.files, [])
    assert line.drivers(GPUS) == ["nvidia"] * 2


@pytest.mark.usefixtures("before")
def test_without_leave_to_reboot_only_the_next_boot_is_prepared(line: Line) -> None:
    boot = line.worker.boot_id()
    # the image is loaded by the step that needs it: that takes minutes in an emulated node
    line.declare(DECLARATION, hostdev_reboot_ok=False, hostdev_launcher_archive="")
    play = line.site()
    line.declare(DECLARATION)
    assert play.code == 0, play.out[-3000:]
    rows = [text for text in play.out.splitlines() if "kernel" in text and "0000:0" in text]
    assert len(rows) == 2
    assert all("pending reboot" in row for row in rows), rows
    assert line.worker.boot_id() == boot
    assert line.drivers(GPUS) == ["nvidia"] * 2
    assert "intel_iommu=off" not in line.files()["/boot/grub/grub.cfg"]
    assert line.allocatable() in ("", "0")


def test_a_node_that_runs_workloads_is_not_rebooted(line: Line) -> None:
    boot = line.worker.boot_id()
    line.plane.apply(pod("database", ["sleep", "1000"], node=NAME))
    wait_for_phase(line.plane, "database", "Running")
    play = line.site()
    line.plane.kubectl("delete", "pod", "database", "--wait=true", "--grace-period=1")
    assert play.code != 0
    assert "cannot reboot worker: it runs default/database" in play.out
    assert line.worker.boot_id() == boot


@pytest.mark.usefixtures("before")
def test_one_device_all_the_way(line: Line) -> None:
    steps.deploy(line)
    steps.guest(line)
    steps.again(line)


def test_a_check_run_on_a_prepared_host_shows_nothing(line: Line) -> None:
    play = line.site("--check", "--diff")
    assert play.code == 0, play.out[-3000:]
    assert play.recap()["changed"] == 0
    assert "+++" not in play.out


def test_a_vm_that_no_node_can_hold_says_what_each_node_has(line: Line) -> None:
    manifest = yaml.safe_load(steps.EXAMPLE.read_text(encoding="utf-8"))
    manifest["metadata"]["name"] = "three"
    manifest["spec"]["domain"]["devices"]["gpus"] = [{"name": f"gpu{i}", "deviceName": RESOURCE} for i in range(3)]
    file = line.work / "three.yaml"
    file.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    play = line.play("vm", variables={"hostdev_vm_file": file.name, "hostdev_launcher_emulation": "always", "hostdev_vm_wait_timeout": 5})
    assert play.code != 0
    assert f"worker: {RESOURCE}: 2 allocatable, 0 in use, 3 wanted" in play.out
    assert line.vm(file, "absent").code == 0


def test_and_back(line: Line, before: steps.Before) -> None:
    steps.back(line, before)

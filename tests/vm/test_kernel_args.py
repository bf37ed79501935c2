"""Boot arguments on a worker that GRUB starts with intel_iommu=off: taken out, rebooted, active; put back as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker, timed_worker

OURS = "/etc/default/grub.d/zz-vfio-passthrough.cfg"
RECORD = "/var/lib/vfio-passthrough/record.json"
FOLDERS = "/etc/default /etc/grub.d"
# every file and folder that boot arguments may come from, and the menu
STATE = f"find {FOLDERS} -type d | sort; find {FOLDERS} -type f -exec sha256sum {{}} + | sort; sha256sum /boot/grub/grub.cfg"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with timed_worker(tmp_path_factory.mktemp("worker"), boot="grub", gpus=1, default_arguments="intel_iommu=off") as machine:
        # the image's first menu is written by hand; from here on every menu is update-grub's
        machine.ssh("update-grub")
        yield machine


def kernel_args(worker: Worker, place: Path, *options: str, **arguments: Any) -> dict[str, Any]:
    """Run the module on the worker as a user would; returns its result."""
    (place / "hosts").write_text(f"{worker.inventory_line()}\n", encoding="utf-8")
    program = Path(sys.executable).with_name("ansible")
    given = json.dumps({"state": "present", **arguments})
    command = [str(program), "worker", "-i", "hosts", "-m", "vfio.passthrough.kernel_args", "-a", given, *options]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(Path(sys.prefix) / "collections"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    _before, mark, text = done.stdout.partition(" => ")
    assert mark, done.stdout + done.stderr
    answer: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    assert answer.get("failed") or "reboot_required" in answer, answer
    return answer


def active(worker: Worker) -> bool:
    return bool(worker.ssh("ls /sys/class/iommu").split()) and bool(worker.ssh("ls /sys/kernel/iommu_groups").split())


def test_off_is_taken_out_and_the_iommu_comes_and_undo_puts_all_back(worker: Worker, tmp_path: Path) -> None:
    former = worker.ssh(STATE)
    assert "intel_iommu=off" in worker.ssh("cat /proc/cmdline")
    assert not active(worker)

    said = kernel_args(worker, tmp_path, "--check", "--diff")
    assert (said["changed"], said["reboot_required"]) == (True, True)
    assert (said["added"], said["removed"]) == (["intel_iommu=on"], ["intel_iommu=off"])
    assert worker.ssh(STATE) == former
    assert worker.ssh(f"ls {RECORD} {OURS} 2>/dev/null || true") == ""

    done = kernel_args(worker, tmp_path)
    assert {**said, "diff": None} == {**done, "diff": None}
    lines = [line for line in worker.ssh("cat /boot/grub/grub.cfg").splitlines() if line.strip().startswith("linux")]
    assert lines
    assert not [line for line in lines if "intel_iommu=off" in line]
    assert done["boot_loader"] == "grub"
    waiting = kernel_args(worker, tmp_path)
    assert (waiting["changed"], waiting["reboot_required"]) == (False, True)

    worker.reboot_and_wait()
    assert active(worker)
    settled = kernel_args(worker, tmp_path, "--check", "--diff")
    assert (settled["changed"], settled["reboot_required"]) == (False, False)

    gone = kernel_args(worker, tmp_path, state="absent")
    assert (gone["changed"], gone["reboot_required"]) == (True, True)
    assert worker.ssh(STATE) == former
    assert worker.ssh("ls -d /var/lib/vfio-passthrough 2>/dev/null || true") == ""
    again = kernel_args(worker, tmp_path, state="absent")
    assert (again["changed"], again["reboot_required"]) == (False, True)


def test_interrupted_between_file_and_menu_converges(worker: Worker, tmp_path: Path) -> None:
    menu = worker.ssh("cat /boot/grub/grub.cfg")
    kernel_args(worker, tmp_path, arguments=["pci=realloc"])
    worker.ssh("cat >/boot/grub/grub.cfg", input=menu)
    assert kernel_args(worker, tmp_path, arguments=["pci=realloc"])["changed"] is True
    assert "pci=realloc" in worker.ssh("cat /boot/grub/grub.cfg")
    assert kernel_args(worker, tmp_path, state="absent")["changed"] is True
    assert worker.ssh("cat /boot/grub/grub.cfg") == menu


def test_settings_that_update_grub_refuses_are_put_back(worker: Worker, tmp_path: Path) -> None:
    before = worker.ssh(STATE)
    worker.ssh("printf '#!/bin/sh\\nexit 3\\n' >/etc/grub.d/99_broken; chmod +x /etc/grub.d/99_broken")
    failed = kernel_args(worker, tmp_path, arguments=["pci=realloc"])
    assert failed["failed"] is True
    assert failed["fault"]["what"] == "generate the boot menu"
    worker.ssh("rm /etc/grub.d/99_broken")
    assert worker.ssh(STATE) == before
    assert worker.ssh(f"ls {RECORD} {OURS} 2>/dev/null || true") == ""

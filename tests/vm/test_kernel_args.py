"""Boot arguments on a worker that GRUB starts with intel_iommu=off: taken out, rebooted, active; put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.vm import adhoc
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


def kernel_args(worker: Worker, **arguments: Any) -> dict[str, Any]:
    """Run the module on the worker as a user would; returns its result, one that did not fail."""
    answer = adhoc.run(worker, "kernel_args", **arguments)
    assert "reboot_required" in answer, answer
    return answer


def active(worker: Worker) -> bool:
    return bool(worker.ssh("ls /sys/class/iommu").split()) and bool(worker.ssh("ls /sys/kernel/iommu_groups").split())


def test_off_is_taken_out_and_the_iommu_comes_and_undo_puts_all_back(worker: Worker) -> None:
    former = worker.ssh(STATE)
    assert "intel_iommu=off" in worker.ssh("cat /proc/cmdline")
    assert not active(worker)

    said = kernel_args(worker, check=True)
    assert (said["changed"], said["reboot_required"]) == (True, True)
    assert (said["added"], said["removed"]) == (["intel_iommu=on"], ["intel_iommu=off"])
    assert worker.ssh(STATE) == former
    assert worker.ssh(f"ls {RECORD} {OURS} 2>/dev/null || true") == ""

    done = kernel_args(worker)
    assert {**said, "diff": None} == {**done, "diff": None}
    lines = [line for line in worker.ssh("cat /boot/grub/grub.cfg").splitlines() if line.strip().startswith("linux")]
    assert lines
    assert not [line for line in lines if "intel_iommu=off" in line]
    assert done["boot_loader"] == "grub"
    waiting = kernel_args(worker)
    assert (waiting["changed"], waiting["reboot_required"]) == (False, True)

    worker.reboot_and_wait()
    assert active(worker)
    settled = kernel_args(worker, check=True)
    assert (settled["changed"], settled["reboot_required"]) == (False, False)

    gone = kernel_args(worker, state="absent")
    assert (gone["changed"], gone["reboot_required"]) == (True, True)
    assert worker.ssh(STATE) == former
    assert worker.ssh("ls -d /var/lib/vfio-passthrough 2>/dev/null || true") == ""
    again = kernel_args(worker, state="absent")
    assert (again["changed"], again["reboot_required"]) == (False, True)


def test_interrupted_between_file_and_menu_converges(worker: Worker) -> None:
    menu = worker.ssh("cat /boot/grub/grub.cfg")
    kernel_args(worker, arguments=["pci=realloc"])
    worker.ssh("cat >/boot/grub/grub.cfg", input=menu)
    assert kernel_args(worker, arguments=["pci=realloc"])["changed"] is True
    assert "pci=realloc" in worker.ssh("cat /boot/grub/grub.cfg")
    assert kernel_args(worker, state="absent")["changed"] is True
    assert worker.ssh("cat /boot/grub/grub.cfg") == menu


def test_settings_that_update_grub_refuses_are_put_back(worker: Worker) -> None:
    before = worker.ssh(STATE)
    worker.ssh("printf '#!/bin/sh\\nexit 3\\n' >/etc/grub.d/99_broken; chmod +x /etc/grub.d/99_broken")
    failed = adhoc.run(worker, "kernel_args", arguments=["pci=realloc"])
    assert failed["fault"]["what"] == "generate the boot menu"
    worker.ssh("rm /etc/grub.d/99_broken")
    assert worker.ssh(STATE) == before
    assert worker.ssh(f"ls {RECORD} {OURS} 2>/dev/null || true") == ""

"""The worker as GRUB boots it: arguments, reboots and power cuts are real."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.vfio.passthrough.tests.vm.machine import timed_worker
from ansible_collections.vfio.passthrough.tests.vm.test_harness import group, link


def test_grub_boots_with_changed_arguments_and_the_gpus_survive(tmp_path: Path) -> None:
    setting = 's/^GRUB_CMDLINE_LINUX_DEFAULT=.*/GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt"/'
    with timed_worker(tmp_path, boot="grub", gpus=1, default_arguments="intel_iommu=off") as worker:
        assert worker.ssh("cat /proc/cmdline").split()[-1] == "intel_iommu=off"
        assert worker.ssh("ls /sys/kernel/iommu_groups").split() == []
        assert link(worker, "0000:01:00.0", "driver") == "nvidia"
        worker.ssh(f"sed -i '{setting}' /etc/default/grub && update-grub")
        worker.reboot_and_wait()
        assert worker.ssh("cat /proc/cmdline").split()[-1] == "iommu=pt"
        assert group(worker, "0000:01:00.0") == ["0000:01:00.0", "0000:01:00.1"]
        assert link(worker, "0000:01:00.0", "driver") == "nvidia"
        worker.ssh("echo kept >/root/kept; sync /root/kept; sync -f /root/kept")
        worker.power_off_hard()
        worker.power_on()
        assert worker.ssh("cat /root/kept").strip() == "kept"
        assert link(worker, "0000:01:00.0", "driver") == "nvidia"

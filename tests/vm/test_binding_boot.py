"""Binding over real boots: GRUB, initramfs, udev's coldplug and the native drivers that it loads."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.vfio.passthrough.tests.vm import adhoc
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker
from ansible_collections.vfio.passthrough.tests.vm.test_binding import BOUND, DEVICES, GPUS, OURS, settled


def test_bound_at_boot_before_the_native_driver_and_native_again_afterwards(tmp_path: Path) -> None:
    with Worker.start(tmp_path, boot="grub") as worker:
        assert settled(worker) == GPUS
        adhoc.run(worker, "pci_binding", devices=DEVICES)
        # a later kernel update copies the rule into the initramfs: it must not hurt, and must not outlive the release
        worker.ssh("update-initramfs -u")
        worker.reboot_and_wait()
        worker.ssh("systemctl is-system-running --wait", check=False)
        assert settled(worker) == BOUND
        assert worker.ssh("systemctl is-active vfio-passthrough-verify.service").strip() == "active"
        assert "nvidia 0000:01:00.0" not in worker.ssh("dmesg")
        assert adhoc.run(worker, "pci_binding", devices=DEVICES)["changed"] is False
        result = adhoc.run(worker, "pci_binding", state="released")
        assert not result["reboot_required"], result["notes"]
        assert settled(worker) == GPUS
        assert worker.ssh("lsinitramfs /boot/initrd.img-* | grep vfio-passthrough", check=False) == ""
        worker.reboot_and_wait()
        deadline = time.monotonic() + 60
        while settled(worker) != GPUS and time.monotonic() < deadline:
            time.sleep(1)
        assert settled(worker) == GPUS
        assert worker.ssh(OURS) == ""

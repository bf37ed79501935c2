"""Hosts whose IOMMU no boot argument switches on, or that lack a part of it: told at once, never rebooted for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.tests.vm import adhoc
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker, timed_worker
from ansible_collections.vfio.passthrough.tests.vm.test_binding import DEVICES, OURS

BOOT_FILES = "find /etc/default /etc/grub.d /boot/grub/grub.cfg -type f -exec sha256sum {} + | sort"
OVERRIDES = "cat /sys/bus/pci/devices/*/driver_override; ls -l /sys/bus/pci/drivers/*/ | grep 0000:"
PLAIN_CPU = "sed 's/ hypervisor//' /proc/cpuinfo >/run/cpuinfo && mount --bind /run/cpuinfo /proc/cpuinfo"


# first, since its worker has ended before the other tests' one starts: two at once could wait for each other for ever
def test_without_interrupt_remapping_it_is_told_before_a_guest_fails(tmp_path: Path) -> None:
    with timed_worker(tmp_path / "worker", iommu="intremap-off", gpus=1) as worker:
        result = adhoc.run(worker, "pci_binding", devices=DEVICES)
        assert result["iommu"]["code"] == "IOMMU_NO_INTR_REMAP"
        assert "interrupt remapping" in result["iommu"]["advice"]
        # translation works, so the devices can be bound
        assert [row["address"] for row in result["functions"]] == ["0000:01:00.0", "0000:01:00.1"]


@pytest.fixture(name="bare", scope="module")
def _bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with timed_worker(tmp_path_factory.mktemp("bare"), iommu=False, gpus=1) as machine:
        yield machine


def state(worker: Worker) -> list[str]:
    return [worker.boot_id(), worker.ssh("cat /proc/cmdline"), *(worker.ssh(look) for look in (BOOT_FILES, OVERRIDES, OURS))]


def refused_without_a_reboot(worker: Worker, folder: Path, advice: str) -> None:
    """Run the user's command with leave to reboot, and both modules: all refuse with the advice and leave the host as it is."""
    before = state(worker)
    code, said = adhoc.play(worker, folder, "site", hostdev_devices=DEVICES, hostdev_reboot_ok=True)
    assert code != 0
    assert advice in " ".join(said.split())
    assert "Reboot the host" not in said
    for module, options in (("kernel_args", {"state": "present"}), ("pci_binding", {"devices": DEVICES})):
        for check in (True, False):
            result = adhoc.run(worker, module, check=check, **options)
            assert "fault" in result
            assert advice in result["msg"], module
    assert state(worker) == before


def test_a_vm_without_a_virtual_iommu_asks_for_one_of_its_hypervisor(bare: Worker, tmp_path: Path) -> None:
    assert bare.ssh("ls /sys/firmware/acpi/tables | grep -E 'DMAR|IVRS' || true") == ""
    refused_without_a_reboot(bare, tmp_path, "its hypervisor has to give it a virtual IOMMU")


def test_a_machine_without_the_firmwares_table_asks_for_the_firmwares_setting(bare: Worker, tmp_path: Path) -> None:
    bare.ssh(PLAIN_CPU)  # all that tells the worker from a machine of its own
    refused_without_a_reboot(bare, tmp_path, "switch the IOMMU on in the firmware's set-up")

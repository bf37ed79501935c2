"""pci_binding and pci_info on a real kernel: real groups, real vfio-pci, real udev, real GRUB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.vm import adhoc
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker

GPUS = {"0000:01:00.0": "nvidia", "0000:01:00.1": "snd_hda_intel", "0000:02:00.0": "nvidia", "0000:02:00.1": "snd_hda_intel"}
DISK, NIC = "0000:00:02.0", "0000:00:1d.0"
DEVICES = [{"resource": "nvidia.com/AD102_GEFORCE_RTX_4090", "select": {"id": "10de:2684"}}]
ONE = [{"resource": "nvidia.com/AD102_GEFORCE_RTX_4090", "select": {"id": "10de:2684", "address": "0000:02:00.0"}}]
RECORD = "/var/lib/vfio-passthrough/record.json"
PROBE = "/sys/bus/pci/drivers_probe"
OURS = "find / -xdev -name '*vfio-passthrough*' -not -path '/proc/*' -not -path '/run/*'; find /run -name '*vfio-passthrough*'"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker.start(tmp_path_factory.mktemp("binding"), restore=True) as machine:
        yield machine


def drivers(worker: Worker) -> dict[str, str]:
    said = worker.ssh("for a in /sys/bus/pci/devices/*; do echo ${a##*/} $(basename $(readlink $a/driver) 2>/dev/null); done")
    rows = [[*line.split(), ""][:2] for line in said.splitlines()]
    return {address: driver for address, driver in rows if address in GPUS}


def settled(worker: Worker) -> dict[str, str]:
    worker.ssh("udevadm settle")
    return drivers(worker)


BOUND = dict.fromkeys(GPUS, "vfio-pci")


def test_disk_and_interface_are_refused_at_once(worker: Worker) -> None:
    before = drivers(worker)
    entries: list[dict[str, Any]] = [
        {"resource": "example.com/disk", "select": {"address": DISK}, "allow": ["foreign_members"]},
        {"resource": "example.com/nic", "select": {"address": NIC}, "allow": ["nic"]},
    ]
    result = adhoc.run(worker, "pci_binding", devices=[*DEVICES, *entries])
    found = {(one["address"], one["reason"]) for one in result["refused"]}
    assert (DISK, "system disk") in found
    # nobody named the address: the open SSH connection shows it
    assert (NIC, "management NIC") in found
    assert result["fault"]["kind"] == "refused"
    assert drivers(worker) == before
    assert worker.ssh(OURS) == ""


def test_check_mode_says_all_and_does_nothing(worker: Worker) -> None:
    result = adhoc.run(worker, "pci_binding", check=True, devices=DEVICES)
    assert result["changed"]
    assert settled(worker) == GPUS
    assert worker.ssh(OURS) == ""


def test_both_groups_move_with_companions_and_a_second_run_changes_nothing(worker: Worker) -> None:
    result = adhoc.run(worker, "pci_binding", devices=DEVICES)
    assert {row["address"]: row["former"] for row in result["functions"]} == GPUS
    assert drivers(worker) == BOUND
    groups = {row["group"] for row in result["functions"]}
    assert groups <= set(worker.ssh("ls /dev/vfio").split())
    again = adhoc.run(worker, "pci_binding", devices=DEVICES)
    assert (again["changed"], again["reboot_required"]) == (False, False)
    info = adhoc.run(worker, "pci_info", devices=DEVICES)
    assert [unit["health"] for unit in info["units"]] == ["Healthy", "Healthy"]
    assert info["iommu"]["code"] == "IOMMU_OK"


def test_what_is_no_longer_declared_goes_back_and_comes_again(worker: Worker) -> None:
    group = worker.ssh("basename $(readlink /sys/bus/pci/devices/0000:01:00.0/iommu_group)").strip()
    pid = worker.ssh(f"exec 3<>/dev/vfio/{group}; sleep 600 >/dev/null 2>&1 & echo $!").strip()
    held = adhoc.run(worker, "pci_binding", devices=ONE)
    worker.ssh(f"kill {pid}")
    assert [row["state"] for row in held["functions"]] == ["bound", "bound", "in use", "in use"]
    assert (settled(worker), held["reboot_required"]) == (BOUND, False)
    result = adhoc.run(worker, "pci_binding", devices=ONE)
    assert settled(worker) == {address: "vfio-pci" if address.startswith("0000:02") else driver for address, driver in GPUS.items()}
    assert (result["changed"], result["reboot_required"]) == (True, False)
    assert adhoc.run(worker, "pci_binding", devices=ONE)["changed"] is False
    adhoc.run(worker, "pci_binding", devices=DEVICES)
    assert settled(worker) == BOUND


def test_a_held_group_is_not_given_back(worker: Worker) -> None:
    group = worker.ssh("basename $(readlink /sys/bus/pci/devices/0000:01:00.0/iommu_group)").strip()
    pid = worker.ssh(f"exec 3<>/dev/vfio/{group}; sleep 600 >/dev/null 2>&1 & echo $!").strip()
    result = adhoc.run(worker, "pci_binding", state="released")
    worker.ssh(f"kill {pid}")
    assert result["fault"]["kind"] == "busy"
    assert f"process {pid} (sleep) has /dev/vfio/{group} open" in result["msg"]
    assert drivers(worker) == BOUND


def test_given_back_nothing_is_left_and_no_replayed_event_takes_it_again(worker: Worker) -> None:
    result = adhoc.run(worker, "pci_binding", state="released")
    assert (result["changed"], result["reboot_required"]) == (True, False)
    assert settled(worker) == GPUS
    assert worker.ssh(OURS) == ""
    worker.ssh("udevadm trigger --action=add --subsystem-match=pci")
    assert settled(worker) == GPUS
    assert adhoc.run(worker, "pci_binding", state="released")["changed"] is False


def test_a_bind_that_does_not_take_is_rolled_back(worker: Worker) -> None:
    override = "/sys/bus/pci/devices/0000:02:00.1/driver_override"
    # a plain file over the attribute: the write is accepted and nothing comes of it
    worker.ssh(f"echo '(null)' >/tmp/deaf && mount --bind /tmp/deaf {override}")
    try:
        result = adhoc.run(worker, "pci_binding", devices=ONE)
    finally:
        worker.ssh(f"umount {override}")
    assert "0000:02:00.1: it reads snd_hda_intel instead of vfio-pci" in result["msg"]
    assert "0000:02:00.0 is back on nvidia" in result["msg"]
    assert settled(worker) == GPUS


def stuck(worker: Worker, folder: Path) -> Any:
    """Start a binding that stops in the middle: the probe's file is a pipe that nobody reads."""
    worker.ssh(f"rm -f /tmp/pipe; mkfifo /tmp/pipe; mount --bind /tmp/pipe {PROBE}")
    process = adhoc.start(worker, folder, "pci_binding", devices=ONE)
    # earlier writes have a tee too: the one that is meant hangs on the probe
    worker.ssh(
        f"for i in $(seq 600); do pgrep -ax tee | grep -q {PROBE} && break; sleep .1; done; pgrep -ax tee | grep {PROBE}; test -s {RECORD}"
    )
    return process


def test_killed_in_the_middle_the_next_run_converges(worker: Worker, tmp_path: Path) -> None:
    process = stuck(worker, tmp_path)
    # without its parent tee may end by itself, before it can be killed
    worker.ssh("tee=$(pidof tee); kill -9 $(ps -o ppid= -p $tee) && { kill -9 $tee 2>/dev/null || true; }")
    process.communicate()
    worker.ssh(f"umount {PROBE}")
    assert {driver for address, driver in drivers(worker).items() if address.startswith("0000:02")} == {""}
    result = adhoc.run(worker, "pci_binding", devices=ONE)
    assert {row["address"]: row["former"] for row in result["functions"]} == {a: d for a, d in GPUS.items() if a.startswith("0000:02")}
    assert drivers(worker)["0000:02:00.0"] == "vfio-pci"
    adhoc.run(worker, "pci_binding", state="released")
    assert settled(worker) == GPUS


def test_power_lost_in_the_middle_the_next_run_converges(worker: Worker, tmp_path: Path) -> None:
    process = stuck(worker, tmp_path)
    worker.power_off_hard()
    process.communicate()
    worker.power_on()
    assert settled(worker) == GPUS
    adhoc.run(worker, "pci_binding", devices=DEVICES)
    assert drivers(worker) == BOUND
    adhoc.run(worker, "pci_binding", state="released")
    assert settled(worker) == GPUS
    assert worker.ssh(OURS) == ""

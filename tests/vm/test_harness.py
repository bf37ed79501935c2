"""The worker itself: what every other test on it takes for granted."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.vfio.passthrough.tests.vm.devices import Function
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker

PCI = "/sys/bus/pci/devices"
GPUS = ("0000:01:00", "0000:02:00")
ROOT_DISK, NETWORK = "0000:00:02.0", "0000:00:1d.0"


def link(worker: Worker, address: str, name: str) -> str:
    """Return where a link of a PCI function points to, "" without it."""
    return worker.ssh(f"basename $(readlink {PCI}/{address}/{name}) 2>/dev/null || true").strip()


def group(worker: Worker, address: str) -> list[str]:
    return worker.ssh(f"ls {PCI}/{address}/iommu_group/devices").split()


def bind(worker: Worker, address: str, driver: str) -> None:
    base = f"{PCI}/{address}"
    worker.ssh(f"echo {driver} >{base}/driver_override; [ ! -e {base}/driver ] || echo {address} >{base}/driver/unbind")
    worker.ssh(f"echo {address} >/sys/bus/pci/drivers_probe")


def test_each_gpu_shares_a_group_with_its_audio_function_alone(worker: Worker) -> None:
    assert [group(worker, f"{gpu}.0") for gpu in GPUS] == [[f"{gpu}.0", f"{gpu}.1"] for gpu in GPUS]
    assert [group(worker, address) for address in (ROOT_DISK, NETWORK)] == [[ROOT_DISK], [NETWORK]]


def test_gpus_are_what_they_say_and_held_by_the_vendors_driver(worker: Worker) -> None:
    listed = worker.ssh("lspci -n -s 01:").split("\n")
    assert "0300: 10de:2684" in listed[0]
    assert "0403: 10de:22ba" in listed[1]
    assert [link(worker, f"{gpu}.0", "driver") for gpu in GPUS] == ["nvidia", "nvidia"]
    assert [link(worker, f"{gpu}.1", "driver") for gpu in GPUS] == ["snd_hda_intel", "snd_hda_intel"]


def test_root_disk_and_management_interface_are_the_ones_that_tests_name(worker: Worker) -> None:
    assert worker.ssh("hostname").strip() == "worker"
    assert ROOT_DISK in worker.ssh("readlink -f /sys/class/block/vda")
    assert worker.ssh("findmnt -n -o SOURCE /").strip() == "/dev/vda2"
    assert NETWORK in worker.ssh("readlink -f /sys/class/net/eth0")


def test_no_unit_has_failed(worker: Worker) -> None:
    assert worker.ssh("systemctl --failed --plain --no-legend").strip() == ""


def test_files_go_there_and_back(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("content\n", encoding="ascii")
    worker.put(tmp_path / "there", "/root/there")
    worker.get("/root/there", tmp_path / "back")
    assert (tmp_path / "back").read_text(encoding="ascii") == "content\n"
    assert worker.ssh("cat; false", check=False, input="fed") == "fed"


def test_a_whole_group_goes_to_vfio_and_back(worker: Worker) -> None:
    functions = [f"{GPUS[1]}.0", f"{GPUS[1]}.1"]
    worker.ssh("modprobe vfio-pci")
    for address in functions:
        bind(worker, address, "vfio-pci")
    assert [link(worker, address, "driver") for address in functions] == ["vfio-pci", "vfio-pci"]
    assert link(worker, functions[0], "iommu_group") in worker.ssh("ls /dev/vfio").split()
    for address in functions:
        bind(worker, address, "")
    assert [link(worker, address, "driver") for address in functions] == ["nvidia", "snd_hda_intel"]


def test_other_devices_come_and_go(worker: Worker) -> None:
    assert worker.ssh(f"cat {PCI}/{worker.plug_edu()}/device").strip() == "0x11e8"
    assert link(worker, worker.plug_nvme(), "driver") == "nvme"
    address = worker.plug_device("card", 5, Function(0x8086, 0x0B60, 0x120000, bar_mib=1))
    assert group(worker, address) == [address]
    worker.unplug("card")
    worker.wait_gone(address)
    assert "RESET" in worker.device_log("card")

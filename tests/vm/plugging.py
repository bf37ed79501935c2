"""Devices beside the GPUs: a NIC with virtual functions, mediated devices, USB sticks; and vfio with a node per device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from . import modules
from .links import wait_for
from .machine import Preparation, Worker
from .tree import tree

PCI = "/sys/bus/pci/devices"
USB = "/sys/bus/usb/devices"
SAMPLES = "/run/test-modules/mdev"
REBUILT = "/run/test-modules/vfio"
# irqbypass is the kernel's own; the others stand in for it, each after what it needs
IOMMUFD_ORDER = ("iommufd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci")
STOCK_ORDER = ("mtty", "mbochs", "mdev", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio")
PRELOADED = "modprobe -a nvidia snd_hda_intel igb xhci_pci usb_storage vfio-pci vfio_iommu_type1 mdev"


def _built() -> Path:
    return modules.vfio_modules((tree() / "kernel").read_text(encoding="ascii").strip())


def _prepare(worker: Worker) -> None:
    worker.ssh("mkdir -p /run/test-modules")
    for folder in ("mdev", "vfio"):
        worker.put(_built() / folder, "/run/test-modules/")
    worker.ssh(f"{PRELOADED}; for name in mtty mbochs; do insmod {SAMPLES}/$name.ko; done; udevadm settle")


def every_kind() -> Preparation:
    """Return the preparation of a worker that has the drivers of every kind of device loaded, parents of mediated ones included."""
    return Preparation("every-kind", _prepare, (PRELOADED, _built().name))


def bind(worker: Worker, addresses: Iterable[str], driver: str = "vfio-pci") -> None:
    """Move PCI functions to a driver, "" for the one that the kernel chooses, by driver_override as the product does."""
    lines = [
        f"p={PCI}/{one}; echo {driver} >$p/driver_override; [ ! -e $p/driver ] || echo {one} >$p/driver/unbind; "
        f"echo {one} >/sys/bus/pci/drivers_probe"
        for one in addresses
    ]
    worker.ssh("set -e; " + "; ".join(lines))


def drivers(worker: Worker, addresses: Iterable[str]) -> list[str]:
    """Return the driver of each PCI function, "" for none, and for one that is not there."""
    look = "; ".join(f"echo x$(basename $(readlink {PCI}/{one}/driver) 2>/dev/null)" for one in addresses)
    return [line[1:] for line in worker.ssh(look).split()]


def group(worker: Worker, address: str) -> str:
    """Return the number of a function's IOMMU group."""
    return worker.ssh(f"basename $(readlink {PCI}/{address}/iommu_group)").strip()


def plug_nic(worker: Worker, port: int) -> str:
    """Hot-plug a NIC that can have seven virtual functions (Intel 82576, 8086:10c9; they are 8086:10ca); return its address."""
    worker.qmp("netdev_add", type="user", id=f"net{port}", restrict=True)
    worker.qmp("device_add", driver="igb", id=f"nic{port}", bus=f"rp{port}", netdev=f"net{port}", romfile="")
    address = f"0000:{port:02x}:00.0"
    there = f"test -e {PCI}/{address}/driver"
    wait_for(f"the NIC's driver at {address}", lambda: worker.shell.run(there).returncode == 0, worker.running)
    return address


def make_functions(worker: Worker, address: str, count: int) -> list[str]:
    """Make so many virtual functions of a physical one, on no driver, and return their addresses in order."""
    made = f"echo 0 >{PCI}/{address}/sriov_drivers_autoprobe; echo {count} >{PCI}/{address}/sriov_numvfs"
    worker.ssh(f"set -e; {made}; udevadm settle")
    numbers = range(count)
    return worker.ssh("; ".join(f"basename $(readlink {PCI}/{address}/virtfn{number})" for number in numbers)).split()


def make_mdev(worker: Worker, parent: str, kind: str, uuid: str) -> str:
    """Make a mediated device of a type (mtty-1, mtty-2; mbochs-small ...) of the parent mtty or mbochs; return its group."""
    worker.ssh(f"echo {uuid} >/sys/class/mdev_bus/{parent}/mdev_supported_types/{parent}-{kind}/create; udevadm settle")
    return worker.ssh(f"basename $(readlink /sys/bus/mdev/devices/{uuid}/iommu_group)").strip()


def remove_mdev(worker: Worker, uuid: str) -> None:
    """Take a mediated device away."""
    worker.ssh(f"echo 1 >/sys/bus/mdev/devices/{uuid}/remove")


def plug_usb_controller(worker: Worker, port: int) -> str:
    """Hot-plug a USB controller (1b36:000d) with eight ports; return QEMU's name of its bus."""
    name = f"usb{port}"
    worker.qmp("device_add", driver="qemu-xhci", id=name, bus=f"rp{port}", p2=4, p3=4)
    address = f"0000:{port:02x}:00.0"
    there = f"ls -d {PCI}/{address}/usb* | grep -q usb"
    wait_for(f"the USB controller at {address}", lambda: worker.shell.run(there).returncode == 0, worker.running)
    return f"{name}.0"


def plug_stick(worker: Worker, bus: str, port: int, serial: str) -> str:
    """Plug a USB stick (46f4:0001) into a port of a controller; return the kernel's name of it, such as 2-1."""
    name = f"stick-{serial}"
    if not any(node["node-name"] == name for node in worker.qmp("query-named-block-nodes", flat=True)):
        worker.qmp("blockdev-add", driver="null-co", node_name=name, size=1 << 20, read_zeroes=True)
    worker.qmp("device_add", driver="usb-storage", id=name, bus=bus, port=str(port), serial=serial, drive=name)
    look = f"grep -lx {serial} {USB}/*/serial"
    wait_for(f"the stick {serial}", lambda: worker.shell.run(look).returncode == 0, worker.running)
    return Path(worker.ssh(look).split()[0]).parent.name


def pull_stick(worker: Worker, serial: str) -> None:
    """Pull a USB stick out; nobody on the worker is asked."""
    worker.qmp("device_del", id=f"stick-{serial}")


def use_iommufd(worker: Worker, bound: Sequence[str]) -> None:
    """Change the kernel's vfio for the set with iommufd and a node per device; functions that are on vfio-pci come back to it.

    Mediated devices have to be gone before, and their parents are gone after it.
    """
    worker.ssh("set -e; " + "; ".join(f"echo {address} >{PCI}/{address}/driver/unbind" for address in bound))
    load = f"for name in {' '.join(IOMMUFD_ORDER)}; do insmod {REBUILT}/$name.ko; done"
    worker.ssh(f"set -e; rmmod {' '.join(STOCK_ORDER)}; modprobe irqbypass; {load}")
    bind(worker, bound)
    worker.ssh("udevadm settle; test -c /dev/iommu")

"""Maker of host trees: a folder that looks like /sys, /proc and /dev of a machine, one device at a time.

Unit tests, module tests, cases and benchmarks take their hosts from here, those with device events (udev.py) too;
the VM tests check the same readers against a real kernel.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root


def no_programs(command: Sequence[str], timeout: float) -> Done:
    """Answer as a machine on which nothing is installed."""
    raise Absent(what="run a command", subject=command[0], cause=f"a made host has no programs (asked for within {timeout:g} s)")


@dataclass
class FakeHost:
    """A host below one folder; `root` is what the runtime takes."""

    base: Path
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers",
            "sys/kernel/iommu_groups",
            "sys/class/iommu",
            "dev/vfio",
            "proc",
            "etc",
            "run",
        ):
            (self.base / folder).mkdir(parents=True, exist_ok=True)

    @property
    def root(self) -> Root:
        """Return the Root over this tree; it has no programs, so that no test asks the machine that it runs on."""
        return Root(base=self.base, runner=no_programs)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the machine ("/proc/cmdline") and return where it is."""
        place = self.base / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def link(self, path: str, target: str) -> None:
        """Make a link of the machine at path; target is a path of the machine too."""
        place = self.base / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(os.path.relpath(self.base / target.lstrip("/"), place.parent))

    def folder_of(self, address: str) -> Path:
        """Return the device folder of a function."""
        return self.base / "sys/devices/pci0000:00" / address

    def function(
        self,
        address: str,
        id: str = "10de:2684",
        class_code: str = "030000",
        *,
        driver: str = "",
        group: str = "",
        files: dict[str, str] | None = None,
        uevent: str | None = None,
        real_folder: bool = False,
    ) -> Path:
        """Add a function; files are further attributes by name ("numa_node": "0\\n"). Without uevent one is made from the ids."""
        bus = self.base / "sys/bus/pci/devices" / address
        folder = bus if real_folder else self.folder_of(address)
        folder.mkdir(parents=True, exist_ok=True)
        if not real_folder:
            self.link(f"/sys/bus/pci/devices/{address}", f"/sys/devices/pci0000:00/{address}")
        vendor, device = id.split(":")
        told = uevent
        if told is None:
            told = f"PCI_CLASS={class_code.lstrip('0').upper()}\nPCI_ID={id.upper()}\nPCI_SLOT_NAME={address}\n"
            told = (f"DRIVER={driver}\n" if driver else "") + told
            plain = {"vendor": f"0x{vendor}\n", "device": f"0x{device}\n", "class": f"0x{class_code}\n", "driver_override": "(null)\n"}
            for name, text in plain.items():
                (folder / name).write_text(text, encoding="utf-8")
        (folder / "uevent").write_text(told, encoding="utf-8")
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        self.link(str(folder.relative_to(self.base) / "subsystem"), "/sys/bus/pci")
        self.bind(folder, driver)
        if group:
            self._join(folder, address, group)
        self.made.append(address)
        return folder

    def bind(self, folder: Path, driver: str) -> None:
        """Point the function's driver link to a driver, and the driver's own link back; or take both away."""
        before = folder / "driver"
        if before.is_symlink():
            (before / folder.name).unlink(missing_ok=True)
            before.unlink()
        if driver:
            home = self.base / "sys/bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            (home / folder.name).symlink_to(os.path.relpath(folder, home))
            before.symlink_to(os.path.relpath(home, folder))

    def _join(self, folder: Path, address: str, group: str) -> None:
        home = self.base / "sys/kernel/iommu_groups" / group
        (home / "devices").mkdir(parents=True, exist_ok=True)
        (folder / "iommu_group").symlink_to(os.path.relpath(home, folder))
        member = home / "devices" / address
        if not member.is_symlink():
            member.symlink_to(os.path.relpath(folder, home / "devices"))

    def node(self, group: str) -> Path:
        """Make the group's node as a plain file (a real node needs a real kernel)."""
        return self.write(f"/dev/vfio/{group}", "")

    def char(self, path: str) -> Path:
        """Make a character device at a path of the machine ("/dev/kvm"): a link to /dev/null, which takes no rights to make."""
        place = self.base / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to("/dev/null")
        return place

    def mdev(
        self,
        uuid: str,
        type_id: str = "nvidia-222",
        name: str | None = "GRID T4-1Q\n",
        *,
        parent: str = "0000:65:00.0",
        group: str = "",
        real_folder: bool = False,
    ) -> Path:
        """Add a mediated device below its parent, without a node; name is the text of its type's `name` file, None for no such file."""
        bus = f"/sys/bus/mdev/devices/{uuid}"
        folder = self.base / bus.lstrip("/") if real_folder else self.folder_of(parent) / uuid
        folder.mkdir(parents=True, exist_ok=True)
        home = self.folder_of(parent) / "mdev_supported_types" / type_id
        home.mkdir(parents=True, exist_ok=True)
        if name is not None:
            (home / "name").write_text(name, encoding="utf-8")
        if type_id:
            (folder / "mdev_type").symlink_to(os.path.relpath(home, folder))
        if not real_folder:
            self.link(bus, f"/{folder.relative_to(self.base)}")
        if group:
            self._join(folder, uuid, group)
        return folder

    def usb(self, port: str, id: str = "46f4:0001", *, bus: int = 1, device: int = 2, serial: str = "", uevent: str | None = None) -> Path:
        """Plug a USB device in at a port ("1-1"), with its node. Without uevent one is made from the numbers."""
        folder = self.base / "sys/devices/pci0000:00/0000:00:14.0" / f"usb{bus}" / port
        folder.mkdir(parents=True, exist_ok=True)
        self.link(f"/sys/bus/usb/devices/{port}", f"/{folder.relative_to(self.base)}")
        vendor, product = id.split(":")
        node = f"bus/usb/{bus:03d}/{device:03d}"
        ids = f"PRODUCT={int(vendor, 16):x}/{int(product, 16):x}/100\n"
        made = f"DEVNAME={node}\nDEVTYPE=usb_device\nDRIVER=usb\n{ids}BUSNUM={bus:03d}\nDEVNUM={device:03d}\n"
        files = {"idVendor": f"{vendor}\n", "idProduct": f"{product}\n", "uevent": made if uevent is None else uevent}
        if serial:
            files["serial"] = f"{serial}\n"
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        if uevent is None:
            self.write(f"/dev/{node}", "")
        return folder

    def unplug(self, port: str) -> None:
        """Take a USB device that `usb` plugged in away, with its node."""
        link = self.base / "sys/bus/usb/devices" / port
        told = dict(line.split("=", 1) for line in (link / "uevent").read_text(encoding="utf-8").splitlines())
        (self.base / "dev" / told["DEVNAME"]).unlink(missing_ok=True)
        shutil.rmtree(link.resolve())
        link.unlink()

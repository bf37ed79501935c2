"""The worker's disk: an ordinary UEFI machine with GRUB, and the files for boots that skip firmware and GRUB."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..harness.cache import Input, cached
from . import debian, kernel, modules
from .tree import PARTS, tree

UUID = "11111111-2222-3333-4444-555555555555"
LABEL = "worker"
SIZE_MIB = 6144
ESP_MIB = 63
GRUB = "./usr/lib/grub/x86_64-efi/monolithic/grubx64.efi"
# the root disk's driver and the console are what a server has; nouveau would race the stand-in for the same devices
FILL = """
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
tar -C "$dir" --numeric-owner --exclude='./dev/*' -xf "$1"
mkdir -p "$dir/usr/lib/modules/$5/updates"
cp "$4"/*.ko "$dir/usr/lib/modules/$5/updates/"
printf 'blacklist nouveau\\nblacklist nvidiafb\\n' >"$dir/etc/modprobe.d/nvidia.conf"
depmod -b "$dir" "$5"
"$6/grub.sh" "$dir" "$3" "$7" "$8"
mke2fs -q -t ext4 -L "$9" -U "$3" -O ^metadata_csum_seed,^orphan_file,^metadata_csum \\
  -E offset=67108864,lazy_itable_init=1,lazy_journal_init=1,nodiscard -d "$dir" "$2" "${10}M"
"""
TABLE = """label: gpt
start=1MiB, size={esp}MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
start={root}MiB, size={size}MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
"""
# Debian's signed-style GRUB looks for this file; it only points to the real one on the root file system
STUB = f"search.fs_uuid {UUID} root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n"


def arguments() -> str:
    """Return the kernel arguments of every boot (GRUB_CMDLINE_LINUX): console, and what makes emulated boots fast."""
    return " ".join(["console=ttyS0", "net.ifnames=0", *(PARTS / "arguments.txt").read_text(encoding="ascii").split()])


def worker_image(default_arguments: str = "", preinstall: bool = True) -> Path:
    """Return a folder with disk.raw (bootable by UEFI and GRUB), vmlinux, fast.cpio and the ssh key id.

    default_arguments is GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, and in grub.cfg: "intel_iommu=off", say.
    preinstall: whether what the roles install with apt (tree.PREINSTALL) is there already.
    """
    base = tree(preinstall)
    drivers = modules.driver_modules((base / "kernel").read_text(encoding="ascii").strip())
    inputs: list[Input] = [base.name, drivers.name, FILL, TABLE, STUB, kernel.INIT, arguments(), default_arguments, PARTS / "grub.sh"]
    return cached("worker-image", inputs, lambda place: _build(place, base, drivers, default_arguments), "20 s")


def _build(place: Path, base: Path, drivers: Path, default_arguments: str) -> None:
    tar, disk = base / "root.tar", place / "disk.raw"
    version = (drivers / "version").read_text(encoding="ascii").strip()
    place.chmod(0o755)
    with open(disk, "wb") as file:
        file.truncate(SIZE_MIB << 20)
    disk.chmod(0o666)  # a user namespace's root fills it
    size = SIZE_MIB - ESP_MIB - 2
    values = (tar, disk, UUID, drivers, version, PARTS, arguments(), default_arguments, LABEL, size)
    debian.as_owner(FILL, *(str(value) for value in values))
    disk.chmod(0o644)
    _boot_partition(place, disk, tar, size)
    debian.run(["tar", "-C", str(place), "--no-same-owner", "-xf", str(tar), f"./boot/vmlinuz-{version}"])
    kernel.unpack(place / f"boot/vmlinuz-{version}", place / "vmlinux")
    kernel.fast_initramfs(tar, version, place / "fast.cpio")
    shutil.rmtree(place / "boot")
    shutil.copy(base / "id", place / "id")
    (place / "id").chmod(0o600)


def _boot_partition(place: Path, disk: Path, tar: Path, size: int) -> None:
    """Write the partition table and an EFI system partition with Debian's self-contained GRUB: no grub-install runs."""
    table, esp, stub = place / "table", place / "esp.img", place / "stub.cfg"
    table.write_text(TABLE.format(esp=ESP_MIB, root=ESP_MIB + 1, size=size), encoding="ascii")
    debian.run(["sh", "-c", f"/sbin/sfdisk -q --no-tell-kernel -w never {disk} <{table}"])
    debian.run(["tar", "-C", str(place), "--no-same-owner", "-xf", str(tar), GRUB])
    stub.write_text(STUB, encoding="ascii")
    with open(esp, "wb") as file:
        file.truncate(ESP_MIB << 20)
    # mkfs.vfat, not mformat: grub-probe takes the latter's boot sector for a partition table
    debian.run(["/sbin/mkfs.vfat", "-F", "32", "-n", "ESP", str(esp)])
    debian.run(["mmd", "-i", str(esp), "::EFI", "::EFI/BOOT", "::EFI/debian"])
    for source, target in ((place / GRUB, "BOOT/BOOTX64.EFI"), (stub, "BOOT/grub.cfg"), (stub, "debian/grub.cfg")):
        debian.run(["mcopy", "-i", str(esp), str(source), f"::EFI/{target}"])
    debian.run(["dd", f"if={esp}", f"of={disk}", "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"])
    for path in (table, esp, stub):
        path.unlink()
    shutil.rmtree(place / "usr")

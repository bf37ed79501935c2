"""The two files of a direct boot: the kernel out of its compression, and an initramfs of busybox and seven modules."""

from __future__ import annotations

import lzma
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from . import debian

WANTED = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do /bin/busybox insmod $module; done
tries=0
while ! disk=$(/bin/busybox findfs LABEL=worker 2>/dev/null) && [ $tries -lt 100 ]; do
  /bin/busybox usleep 20000; tries=$((tries + 1))
done
/bin/busybox mount -t ext4 -o rw,noatime $disk /root
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /sbin/init
"""


def unpack(image: Path, target: Path) -> None:
    """Write the ELF kernel inside a bzImage to target: QEMU starts it in a quarter second, decompressed under emulation in two.

    Source: Documentation/arch/x86/boot.rst, payload_offset (0x248) and payload_length (0x24c).
    """
    data = image.read_bytes()
    sectors = data[0x1F1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    begin = (sectors + 1) * 512 + offset
    payload = data[begin : begin + length]
    if payload.startswith(b"\xfd7zXZ\0"):
        target.write_bytes(lzma.LZMADecompressor().decompress(payload))
        return
    # zstd complains of the payload's last four bytes, the unpacked size, after it has written everything
    done = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, check=False)
    if done.stdout[:4] != b"\x7fELF":
        raise RuntimeError(f"{image} holds no kernel that xz or zstd unpacks: {done.stderr!r}")
    target.write_bytes(done.stdout)


def fast_initramfs(root_tar: Path, version: str, target: Path) -> None:
    """Write an initramfs that mounts the file system labelled worker and starts its init."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name) / "top"
        for folder in ("bin", "modules", "proc", "sys", "dev", "root"):
            (top / folder).mkdir(parents=True)
        shutil.copy(_busybox(), top / "bin/busybox")
        for number, module in enumerate(_modules(root_tar, version, Path(name))):
            shutil.copy(module, top / "modules" / f"{number:02d}-{module.name}")
        (top / "init").write_text(INIT, encoding="ascii")
        (top / "init").chmod(0o755)
        names = b"\n".join(os.fsencode(path.relative_to(top)) for path in sorted(top.rglob("*")))
        with open(target, "wb") as out:
            command = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
            subprocess.run(command, cwd=top, input=names, stdout=out, check=True)


def _busybox() -> str:
    found = shutil.which("busybox")
    if not found:
        raise RuntimeError("no busybox on this machine: install the package busybox-static")
    return found


def _modules(root_tar: Path, version: str, scratch: Path) -> list[Path]:
    """Unpack the wanted modules and all they need, in the order to load them."""
    base = f"./usr/lib/modules/{version}"
    debian.run(["tar", "-C", str(scratch), "-xf", str(root_tar), f"{base}/modules.dep"])
    needs: dict[str, list[str]] = {}
    for line in (scratch / base / "modules.dep").read_text(encoding="ascii").splitlines():
        module, dummy, rest = line.partition(":")
        needs[module] = rest.split()
    by_name = {Path(module).name.split(".ko")[0].replace("-", "_"): module for module in needs}
    order: list[str] = []

    def add(module: str) -> None:
        for needed in needs[module]:
            add(needed)
        if module not in order:
            order.append(module)

    for name in WANTED:
        if name in by_name:
            add(by_name[name])
    debian.run(["tar", "-C", str(scratch), "-xf", str(root_tar), *(f"{base}/{module}" for module in order)])
    return [scratch / base / module for module in order]

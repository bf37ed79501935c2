from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.pci import Function
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.boot_files import boot_files, early_script
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.persist import (
    apply_persistence,
    forget_run_state,
    plan_persistence,
)
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kernel import FakeKernel

GPU = Function(Address.parse("0000:01:00.0"), "10de", "2684", "030000", iommu_group="10", modalias="pci:v000010DE")
RULES, SCRIPT = "etc/udev/rules.d/40-vfio-passthrough.rules", "etc/initramfs-tools/scripts/init-top/00-vfio-passthrough"
IMAGE = "boot/initrd.img-6.12"


def packed(tmp_path: Path, *names: str) -> FakeKernel:
    """Return a machine with initramfs-tools and one image that holds names."""
    host = FakeHost(tmp_path)
    host.write("/usr/sbin/update-initramfs", "")
    host.write(f"/{IMAGE}", "image")
    return FakeKernel(
        host,
        answers={"lsinitramfs": "\n".join(names), "modprobe": "nvidia nouveau\n", "update-initramfs": "", "udevadm": "", "systemctl": ""},
    )


def do(kernel: FakeKernel, *functions: Function) -> list[list[str]]:
    kernel.commands.clear()
    apply_persistence(kernel.root, plan_persistence(kernel.root, functions))
    return [command for command in kernel.commands if command[0] == "update-initramfs"]


def test_the_rule_checks_ids_and_group_and_has_a_rescue() -> None:
    rule, rescue = next(one.text for one in boot_files([GPU]) if one.path.endswith(".rules")).splitlines()[-2:]
    for part in (
        'ACTION=="add"',
        'KERNEL=="0000:01:00.0"',
        'ATTR{vendor}=="0x10de"',
        'ATTR{device}=="0x2684"',
        'TEST=="iommu_group"',
        'ATTR{driver_override}="vfio-pci"',
        'RUN{builtin}+="kmod load vfio-pci"',
    ):
        assert part in rule
    assert 'boot-binding rescue 0000:01:00.0"' in rescue
    assert rescue.startswith(rule.partition(", ATTR{driver_override}")[0])


@pytest.mark.parametrize("text", [one.text for one in (*boot_files([GPU]), early_script("/x", [GPU])) if one.text.startswith("#!")])
def test_scripts_are_shell(text: str) -> None:
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_no_early_script_where_no_native_driver_is_packed(tmp_path: Path) -> None:
    kernel = packed(tmp_path, "usr/lib/modules/6.12/kernel/drivers/block/virtio_blk.ko.xz")
    assert do(kernel, GPU) == []
    assert (tmp_path / RULES).exists()
    assert not (tmp_path / SCRIPT).exists()
    assert plan_persistence(kernel.root, [GPU]).is_empty


def test_a_packed_native_driver_needs_the_early_script_and_a_new_image(tmp_path: Path) -> None:
    kernel = packed(tmp_path, "usr/lib/modules/6.12/kernel/drivers/gpu/nouveau.ko.zst")
    assert do(kernel, GPU) == [["update-initramfs", "-u", "-k", "all"]]
    assert os.access(tmp_path / SCRIPT, os.X_OK)
    assert "claim 0000:01:00.0 0x10de 0x2684 vfio-pci" in (tmp_path / SCRIPT).read_text(encoding="ascii")


def remake(kernel: FakeKernel, *names: str) -> None:
    """Do what update-initramfs does: a newer image with these names."""
    kernel.answers["lsinitramfs"] = "\n".join(names)
    later = time.time() + 5
    os.utime(kernel.host.base / IMAGE, (later, later))


def test_an_image_that_was_not_made_anew_is_made_by_the_next_run(tmp_path: Path) -> None:
    kernel = packed(tmp_path, "nouveau.ko")
    del kernel.answers["update-initramfs"]
    with pytest.raises(Absent):
        do(kernel, GPU)
    kernel.answers["update-initramfs"] = ""
    assert len(do(kernel, GPU)) == 1
    remake(kernel, "nouveau.ko", "scripts/init-top/00-vfio-passthrough", "etc/udev/rules.d/40-vfio-passthrough.rules")
    assert do(kernel, GPU) == []
    assert plan_persistence(kernel.root, [GPU]).is_empty


def test_an_image_with_our_rule_is_made_anew_when_the_devices_go_back(tmp_path: Path) -> None:
    kernel = packed(tmp_path, "virtio_blk.ko")
    do(kernel, GPU)
    remake(kernel, "virtio_blk.ko", "etc/udev/rules.d/40-vfio-passthrough.rules")
    assert len(do(kernel)) == 1
    assert not (tmp_path / RULES).exists()
    assert not (tmp_path / "usr/local/lib/vfio-passthrough").exists()
    remake(kernel, "virtio_blk.ko")
    assert plan_persistence(kernel.root, []).is_empty


def test_diff_shows_whole_files_and_the_image(tmp_path: Path) -> None:
    diffs = plan_persistence(packed(tmp_path, "nouveau.ko").root, [GPU]).diffs()
    assert [one["after_header"] for one in diffs][-2:] == ["/etc/initramfs-tools/scripts/init-top/00-vfio-passthrough", "initramfs"]


def test_listings_are_kept_until_the_image_changes(tmp_path: Path) -> None:
    kernel = packed(tmp_path, "virtio_blk.ko")
    do(kernel, GPU)
    del kernel.answers["lsinitramfs"]
    assert plan_persistence(kernel.root, [GPU]).is_empty
    forget_run_state(kernel.root)
    assert not (tmp_path / "run/vfio-passthrough").exists()


def helper(tmp_path: Path, driver: str) -> tuple[Path, FakeHost]:
    """Return the boot helper rewritten to a made tree, and the tree."""
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", driver=driver, group="10")
    text = next(one.text for one in boot_files([GPU]) if one.path.endswith("boot-binding"))
    for place in ("/sys/", "/proc/", "/run/", "/dev/kmsg"):
        text = text.replace(place, f"{tmp_path}{place}")
    host.write("/dev/kmsg", "")
    host.write("/proc/uptime", "12.5 20.0\n")
    script = host.write("/helper", text)
    host.write("/bin/systemd-run", f'#!/bin/sh\necho "$@" >>{tmp_path}/started\n').chmod(0o755)
    return script, host


def call(tmp_path: Path, script: Path, *words: str) -> str:
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    subprocess.run(["sh", str(script), *words], check=True, env={**os.environ, "PATH": path}, capture_output=True)
    started = tmp_path / "started"
    return started.read_text(encoding="ascii") if started.exists() else ""


def test_the_rescue_starts_a_unit_of_its_own(tmp_path: Path) -> None:
    script, _host = helper(tmp_path, "nvidia")
    assert "--no-block --collect --unit=vfio-passthrough-rescue-0000-01-00-0" in call(tmp_path, script, "rescue", "0000:01:00.0")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/run/vfio-passthrough/released/0000:01:00.0", ""),
        ("/run/vfio-passthrough/booted", ""),
        ("/proc/uptime", "601.0 900.0\n"),
        ("/sys/devices/pci0000:00/0000:01:00.0/device", "0x1111\n"),
        ("/sys/devices/pci0000:00/0000:01:00.0/net/eth0/operstate", "up\n"),
    ],
)
def test_the_rescue_leaves_alone_what_was_released_is_used_or_comes_too_late(tmp_path: Path, path: str, text: str) -> None:
    script, host = helper(tmp_path, "nvidia")
    host.write(path, text)
    assert call(tmp_path, script, "rescue", "0000:01:00.0") == ""


def test_the_rescue_sees_open_nodes(tmp_path: Path) -> None:
    script, host = helper(tmp_path, "nvidia")
    host.write("/sys/devices/pci0000:00/0000:01:00.0/drm/card0/uevent", "DEVNAME=dri/card0\n")
    (tmp_path / "proc/77/fd").mkdir(parents=True)
    (tmp_path / "proc/77/fd/3").symlink_to("/dev/dri/card0")
    assert call(tmp_path, script, "rescue", "0000:01:00.0") == ""


def test_the_rescue_has_nothing_to_do_when_the_driver_is_right(tmp_path: Path) -> None:
    script, _host = helper(tmp_path, "vfio-pci")
    assert call(tmp_path, script, "rescue", "0000:01:00.0") == ""

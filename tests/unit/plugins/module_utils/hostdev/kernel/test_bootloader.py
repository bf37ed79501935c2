"""Who starts the machine; what a loader that is not managed is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootargs import ensure
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootloader import loader_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootplan import Wish
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import read_state
from ansible_collections.vfio.passthrough.tests.fakes.grub import Machine

GUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
VARIABLES = "/sys/firmware/efi/efivars"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("/etc/os-release", 'NAME="Debian"\nID=debian\n', "grub"),
        ("/etc/os-release", "ID=talos\n", "talos"),
        ("/etc/os-release", 'ID=fedora\nVARIANT_ID="coreos"\n', "ignition"),
        ("/run/ostree-booted", "", "ostree"),
        ("/etc/kernel/proxmox-boot-uuids", "8B5C-0D1F\n", "proxmox-boot-tool"),
        ("/etc/kernel/proxmox-boot-uuids", "", "grub"),
        ("/proc/xen/capabilities", "control_d\n", "xen-dom0"),
        ("/etc/kernelstub/configuration", "{}", "kernelstub"),
        (f"{VARIABLES}/StubInfo-{GUID}", "", "unified-kernel-image"),
    ],
)
def test_who_boots_with_grub_installed_beside(machine: Machine, path: str, text: str, name: str) -> None:
    machine.put(path, text)
    assert loader_of(machine.root).name == name


@pytest.mark.parametrize(("says", "name"), [("systemd-boot 252", "systemd-boot"), ("GRUB 2.12", "grub")])
def test_the_loaders_own_word(machine: Machine, says: str, name: str) -> None:
    path = machine.put(f"{VARIABLES}/LoaderInfo-{GUID}", "")
    path.write_bytes(b"\x06\0\0\0" + says.encode("utf-16-le"))
    assert loader_of(machine.root).name == name


def test_grub_that_did_not_start_this_kernel_is_not_taken(machine: Machine) -> None:
    machine.put("/proc/cmdline", "root=/dev/vda ro intel_iommu=off\n")
    assert loader_of(machine.root).name == "unknown"


@pytest.mark.parametrize("check", [False, True])
def test_a_change_is_refused_with_the_exact_words(machine: Machine, check: bool) -> None:
    machine.put("/etc/kernelstub/configuration", "{}")
    machine.put("/proc/cmdline", "root=/dev/vda iommu=off intel_iommu=off,igfx_off\n")
    with pytest.raises(Unsupported) as caught:
        ensure(machine.root, loader_of(machine.root), read_state(machine.root), Wish(), check=check)
    assert caught.value.hint == (
        "in kernelstub -a ... -d ..., add: intel_iommu=on; remove: iommu=off; "
        "replace intel_iommu=off,igfx_off by intel_iommu=igfx_off; then reboot"
    )


@pytest.mark.parametrize("wish", [Wish(arguments=("quiet",)), Wish(absent=True), Wish(arguments=())])
def test_nothing_to_do_is_no_failure(machine: Machine, wish: Wish) -> None:
    machine.put("/run/ostree-booted", "")
    result = ensure(machine.root, loader_of(machine.root), read_state(machine.root), wish)
    assert (result["changed"], result["reboot_required"], result["boot_loader"]) == (False, False, "ostree")

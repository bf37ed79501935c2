from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import bound
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.network import read_network
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.safety import Refusal
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.fakes.kernel import FakeKernel, add_disk, add_interface, add_process, demo_host

GPU, AUDIO, DISK, NIC = "0000:01:00.0", "0000:01:00.1", "0000:00:03.0", "0000:00:04.0"


def refused(kernel: FakeKernel, address: str = GPU, allow: tuple[str, ...] = (), management: tuple[str, ...] = ()) -> tuple[Refusal, ...]:
    entry: dict[str, Any] = {"resource": "example.com/x", "select": {"address": address}, "allow": list(allow)}
    plan = bound.plan_bound(kernel.root, parse_declaration([entry]), bound.Wishes(management=management))
    return plan.refused


def reasons(*arguments: Any, **more: Any) -> dict[str, str]:
    return {one.reason: one.evidence for one in refused(*arguments, **more)}


def add_nvme(kernel: FakeKernel, point: str = "") -> str:
    folder = kernel.host.function("0000:03:00.0", "144d:a808", "010802", driver="nvme", group="12")
    add_disk(kernel.host, folder, "nvme0n1", "259:0", point)
    return "0000:03:00.0"


def test_an_idle_card_may_go(tmp_path: Path) -> None:
    assert refused(demo_host(tmp_path)) == ()


@pytest.mark.parametrize("allow", [(), ("nic", "console", "foreign_members")])
def test_the_root_disk_is_never_given_away(tmp_path: Path, allow: tuple[str, ...]) -> None:
    assert reasons(demo_host(tmp_path), DISK, allow) == {
        "system disk": f"selected {DISK} (1af4:1042, class 0100, driver virtio-pci): /dev/vda mounted on /"
    }


@pytest.mark.parametrize(
    ("point", "reason"), [("/boot", "system disk"), ("/var/lib/kubelet", "system disk"), ("/usr", "system disk"), ("/srv", "mounted")]
)
def test_mounts_are_told_by_what_they_carry(tmp_path: Path, point: str, reason: str) -> None:
    kernel = demo_host(tmp_path)
    found = reasons(kernel, add_nvme(kernel, point))
    assert list(found) == [reason]
    assert f"/dev/nvme0n1 mounted on {point}" in found[reason]


def test_a_mount_on_a_volume_is_followed_down_to_its_disk(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    address = add_nvme(kernel)
    kernel.host.write("/sys/devices/virtual/block/dm-0/dm/name", "vg-data\n")
    (tmp_path / "sys/devices/virtual/block/dm-0/slaves/nvme0n1").mkdir(parents=True)
    (tmp_path / "sys/class/block/nvme0n1/holders/dm-0").mkdir(parents=True)
    kernel.host.link("/sys/class/block/dm-0", "/sys/devices/virtual/block/dm-0")
    kernel.host.link("/sys/dev/block/253:0", "/sys/devices/virtual/block/dm-0")
    mounts = (tmp_path / "proc/self/mountinfo").read_text(encoding="ascii")
    kernel.host.write("/proc/self/mountinfo", mounts + "40 26 253:0 / /var/lib/my\\040data rw - xfs /dev/mapper/vg-data rw\n")
    found = reasons(kernel, address)
    assert "mounted on /var/lib/my data" in found["system disk"]
    assert "nvme0n1 is held by dm-0 (vg-data)" in found["held by storage"]


def test_swap_counts_as_the_system(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    address = add_nvme(kernel)
    kernel.host.write("/dev/nvme0n1", "")
    kernel.host.write("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1 partition 1048572 0 -2\n")
    assert "swap on /dev/nvme0n1" in reasons(kernel, address)["system disk"]


def test_a_namespace_of_a_shared_subsystem_is_found(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.function("0000:03:00.0", "144d:a808", "010802", driver="nvme", group="12", files={"nvme/nvme0/serial": "S1\n"})
    home = tmp_path / "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    home.mkdir(parents=True)
    add_disk(kernel.host, home, "nvme0n1", "259:0", "/var")
    (home / "nvme0n1").symlink_to("block/nvme0n1")
    kernel.host.link("/sys/class/nvme-subsystem/nvme-subsys0", "/sys/devices/virtual/nvme-subsystem/nvme-subsys0")
    (home / "nvme0").symlink_to("../../../pci0000:00/0000:03:00.0/nvme/nvme0")
    assert "mounted on /var" in reasons(kernel, "0000:03:00.0")["system disk"]


def test_the_default_route_is_kept_unless_named(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    assert set(reasons(kernel, NIC)) == {"default route", "NIC in use"}
    assert reasons(kernel, NIC, ("nic",)) == {}


def test_the_management_interface_is_never_given_away(tmp_path: Path) -> None:
    assert list(reasons(demo_host(tmp_path), NIC, ("nic",), ("10.0.2.15",))) == ["management NIC"]


def test_an_ssh_connection_shows_the_management_interface(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.write("/proc/net/tcp", "sl local rem st\n 0: 0F02000A:0016 0202000A:C001 01 0\n")
    assert "eth0 carries the management address" in reasons(kernel, NIC, ("nic",))["management NIC"]


TCP = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def management(kernel: FakeKernel) -> str:
    """Return why the interface is not given away, although the declaration allows it as far as it may."""
    return reasons(kernel, NIC, ("nic",)).get("management NIC", "")


def test_sshd_on_another_port_shows_the_management_interface(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.write("/proc/net/tcp", TCP + "0: 0F02000A:08AE 0202000A:C001 01 00000000:00000000 02:0 00000000 0 0 4711 2\n")
    assert management(kernel) == ""
    add_process(kernel.host, 900, "sshd-session", "socket:[4711]")
    assert "eth0 carries the management address 10.0.2.15 (an SSH connection is open)" in management(kernel)


def test_the_runs_own_connection_counts_although_sudo_hides_it(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.write(f"/proc/{os.getpid()}/status", "Name:\tpython3\nPPid:\t77\n")
    kernel.host.write(f"/proc/{os.getpid()}/environ", "LANG=C\0SUDO_UID=1000\0")
    kernel.host.write("/proc/77/status", "Name:\tsh\nPPid:\t1\n")
    kernel.host.write("/proc/77/environ", "LANG=C\0SSH_CONNECTION=192.0.2.9 50000 ::ffff:10.0.2.15 2222\0")
    assert "this run came over it" in management(kernel)


@pytest.mark.parametrize("flags", ["--node-ip=10.0.2.15", "--node-ip\0fd00::1,10.0.2.15"])
def test_the_nodes_own_address_is_never_given_away(tmp_path: Path, flags: str) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.write("/proc/55/comm", "kubelet\n")
    kernel.host.write("/proc/55/cmdline", f"/usr/bin/kubelet\0--v=2\0{flags}\0")
    assert "the kubelet's --node-ip" in management(kernel)


def nfs(kernel: FakeKernel) -> None:
    line = "99 26 0:50 / /srv rw shared:9 - nfs4 nas:/x rw,vers=4.2,clientaddr=10.0.2.15,addr=10.0.2.9\n"
    mounts = kernel.host.base / "proc/self/mountinfo"
    kernel.host.write("/proc/self/mountinfo", mounts.read_text(encoding="ascii") + line)


def iscsi(kernel: FakeKernel) -> None:
    kernel.host.write("/sys/class/iscsi_connection/connection1:0/address", "10.0.2.9\n")


def nvme(kernel: FakeKernel) -> None:
    kernel.host.write("/sys/class/nvme/nvme5/address", "traddr=10.0.2.9,trsvcid=4420,src_addr=10.0.2.15\n")
    kernel.host.write("/sys/class/nvme/nvme5/transport", "tcp\n")


@pytest.mark.parametrize(("add", "what"), [(nfs, "NFS server"), (iscsi, "iSCSI portal"), (nvme, "NVMe target")])
def test_the_way_to_the_hosts_storage_is_never_given_away(tmp_path: Path, add: Callable[[FakeKernel], None], what: str) -> None:
    kernel = demo_host(tmp_path)
    add(kernel)

    def run(command: Sequence[str], timeout: float) -> Done:
        if list(command) == ["ip", "-json", "route", "get", "10.0.2.9"]:
            return Done(0, '[{"dst": "10.0.2.9", "dev": "eth0", "prefsrc": "10.0.2.15"}]', "")
        return kernel.run(command, timeout)

    network = read_network(Root(base=tmp_path, runner=run))
    assert network.management_interfaces == {"eth0": f"10.0.2.15 (the {what} 10.0.2.9 is reached from it)"}


def test_a_bond_below_the_default_route_is_followed(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    folder = kernel.host.function("0000:04:00.0", "8086:1521", "020000", driver="igb", group="14")
    net = add_interface(kernel.host, folder, "eth1")
    kernel.host.write("/sys/devices/virtual/net/bond0/upper_bond0.7", "")
    kernel.host.link("/sys/class/net/bond0", "/sys/devices/virtual/net/bond0")
    kernel.host.write("/sys/devices/virtual/net/bond0.7/mtu", "1500\n")
    kernel.host.link("/sys/class/net/bond0.7", "/sys/devices/virtual/net/bond0.7")
    (net / "master").symlink_to("../../../../virtual/net/bond0")
    kernel.host.write("/proc/net/route", "head\nbond0.7\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\n")
    found = reasons(kernel, "0000:04:00.0")
    assert "bond0.7 has the default route" in found["default route"]
    assert "eth1 is a member of bond0" in found["NIC in use"]


def test_the_boot_console_is_kept_unless_consented(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    (kernel.host.folder_of(GPU) / "boot_vga").write_text("1\n", encoding="ascii")
    assert "boot display" in reasons(kernel)["boot console"]
    assert reasons(kernel, GPU, ("console",)) == {}


def test_who_uses_a_card_is_named(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.write(f"/proc/driver/nvidia/gpus/{GPU}/information", "Model: x\nDevice Minor: \t 3\n")
    kernel.host.write(f"/sys/devices/pci0000:00/{AUDIO}/sound/card1/pcmC1D0p/uevent", "DEVNAME=snd/pcmC1D0p\n")
    add_process(kernel.host, 77, "nvidia-persiste", "/dev/nvidia3", "/dev/nvidiactl")
    add_process(kernel.host, 78, "pipewire", "/dev/snd/pcmC1D0p")
    found = refused(kernel)
    assert [(one.address, one.reason) for one in found] == [(GPU, "in use"), (AUDIO, "in use")]
    assert "process 77 (nvidia-persiste) has /dev/nvidia3 open" in found[0].evidence
    assert "process 78 (pipewire)" in found[1].evidence


def test_a_stranger_in_the_group_is_named_with_its_use_and_moves_only_when_allowed(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    folder = kernel.host.function("0000:05:00.0", "1022:43c8", "010601", driver="ahci", group="10")
    found = refused(kernel)
    assert [(one.address, one.reason) for one in found] == [("0000:05:00.0", "foreign member")]
    assert "not in use" in found[0].evidence
    assert "slot" in found[0].hint
    assert refused(kernel, GPU, ("foreign_members",)) == ()
    add_disk(kernel.host, folder, "sda", "8:0", "/home")
    assert "in use: /dev/sda mounted on /home" in refused(kernel)[0].evidence
    assert [one.reason for one in refused(kernel, GPU, ("foreign_members",))] == ["mounted"]


def test_bridges_of_the_group_do_not_count(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.function("0000:00:01.0", "8086:1901", "060400", driver="pcieport", group="10")
    assert refused(kernel) == ()


@pytest.mark.parametrize(
    ("code", "vendor", "reason"), [("060400", "8086", ["bridge"]), ("060100", "8086", ["bridge"]), ("068000", "10de", [])]
)
def test_bridges_are_not_selected_but_switches_are(tmp_path: Path, code: str, vendor: str, reason: list[str]) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.function("0000:06:00.0", f"{vendor}:1111", code, group="15")
    assert list(reasons(kernel, "0000:06:00.0")) == reason


def test_virtual_functions_and_instances_hold_their_parent(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    folder = kernel.host.function(
        "0000:07:00.0", "10de:2236", "030200", driver="nvidia", group="16", files={"sriov_totalvfs": "16\n", "sriov_numvfs": "4\n"}
    )
    (folder / "mdev-1").mkdir()
    kernel.host.link("/sys/bus/mdev/devices/mdev-1", "/sys/devices/pci0000:00/0000:07:00.0/mdev-1")
    assert set(reasons(kernel, "0000:07:00.0")) == {"has virtual functions", "instances exist"}


def test_an_orphaned_virtual_function_is_refused(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.function("0000:07:00.0", "8086:1572", "020000", group="16")
    vf = kernel.host.function("0000:07:10.0", "8086:154c", "020000", group="17")
    (vf / "physfn").symlink_to("../0000:07:00.0")
    assert "0000:07:00.0 has no driver" in reasons(kernel, "0000:07:10.0")["physical function without driver"]


def test_uncovered_and_behind_vmd(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    kernel.host.function("10000:01:00.0", "144d:a808", "010802", driver="nvme")
    assert set(reasons(kernel, "10000:01:00.0")) == {"behind VMD", "no IOMMU group"}


def test_every_refusal_is_told_at_once_and_nothing_is_changed(tmp_path: Path) -> None:
    kernel = demo_host(tmp_path)
    entries = [{"resource": "example.com/disk", "select": {"address": DISK}}, {"resource": "example.com/nic", "select": {"address": NIC}}]
    plan = bound.plan_bound(kernel.root, parse_declaration(entries), bound.Wishes(management=("10.0.2.15",)))
    with pytest.raises(Refused) as caught:
        bound.check_bound(plan)
    for words in (DISK, "/dev/vda mounted on /", NIC, "default route", "management address", "nothing was changed"):
        assert words in caught.value.text()
    assert kernel.writes == []

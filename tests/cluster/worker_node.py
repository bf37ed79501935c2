"""The worker VM as a node of the cluster: containerd and kubelet as systemd units that return after a reboot by themselves."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..harness.cache import cached
from ..harness.say import step
from . import binaries, images, settings
from .controlplane import SLIRP_HOST, ControlPlane
from .node import log_text

LABEL = "bin"
BIN = Path("/opt/bin")
STATE = Path("/etc/test-node")
SOCKET = Path("/run/containerd/containerd.sock")
MOUNT_UNIT = "opt-bin.mount"
SUBNET = "10.244.100.0/24"


class Machine(Protocol):
    """What is asked of the VM: a root shell that raises when the command fails, and a way to put files there."""

    def ssh(self, command: str, /) -> Any:
        """Run a command as root."""

    def put(self, local: Path, remote: str, /) -> Any:
        """Copy a file or folder of ours to a path of the VM."""


def bin_disk(extra: Sequence[Path] = ()) -> Path:
    """Return an ext4 disk image, label `bin`, for a read-only drive of the VM: the node's programs and small images' archives.

    `extra` are further image archives, found in the VM as /opt/bin/images/NAME.
    """
    small = [images.pause_image(), images.busybox_image()]
    programs = [
        binaries.kubernetes() / "kubelet",
        *(binaries.containerd() / name for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    ]
    archives = [*small, *extra]

    def build(out: Path) -> None:
        with tempfile.TemporaryDirectory(dir=out) as work:
            tree = Path(work) / "tree"
            (tree / "images").mkdir(parents=True)
            for program in programs:
                shutil.copy2(program, tree / program.name)
            for archive in archives:
                shutil.copyfile(archive, tree / "images" / archive.name)
            _ext4(tree, out / "bin.raw")

    inputs = [part for path in [*programs, *archives] for part in (path.name, path.parent.name)]
    made = cached("bin-disk", inputs, build, "3 to 20 s") / "bin.raw"
    images.forget_old(made.parent)
    return made


def install_node(machine: Machine, plane: ControlPlane, name: str = "worker", seconds: float = 180.0) -> None:
    """Make the VM a Ready node NAME of the cluster; its disk `bin` must be attached.

    The API server is reached as 10.0.2.2, QEMU's name for this machine. After a reboot of the VM the node returns by itself.
    """
    with step(f"make the VM node {name}", "20 s"):
        machine.ssh(f"date -u -s @{int(time.time())} >/dev/null")  # certificates have a time of validity
        _put(machine, _files(plane, name))
        units = f"{MOUNT_UNIT} containerd.service kubelet.service"
        machine.ssh(f"systemctl daemon-reload && systemctl enable -q {units} && systemctl start containerd.service")
        for archive in ("pause.tar", "busybox.tar"):
            import_image(machine, f"{BIN}/images/{archive}")
        machine.ssh("systemctl restart kubelet.service")
        wait_ready(plane, name, seconds)


def wait_ready(plane: ControlPlane, name: str, seconds: float = 180.0) -> None:
    """Wait until the kubelet of node NAME has said Ready from now on: its lease is renewed and the condition is True.

    The condition alone says nothing just after a reboot: the API server keeps the old one for 40 s.
    """
    begin = _renewed(plane, name)
    limit = time.monotonic() + seconds
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    while True:
        ready = plane.kubectl("get", "node", name, "-o", path, "--ignore-not-found", check=False) == "True"
        if ready and _renewed(plane, name) != begin:
            return
        if time.monotonic() > limit:
            described = plane.kubectl("describe", "node", name, check=False)
            raise TimeoutError(f"node {name} is not Ready after {seconds:.0f} s:\n{described[-2000:]}")
        time.sleep(0.5)


def import_image(machine: Machine, archive: str) -> None:
    """Load a docker archive that lies in the VM; pods use it with imagePullPolicy Never."""
    machine.ssh(f"{BIN}/ctr -n k8s.io images import {shlex.quote(archive)} >/dev/null")


def pod_log_command(namespace: str, pod: str, container: str) -> str:
    """Return the shell line that prints a container's log file in the VM (log_text makes its text of it).

    kubectl logs cannot: the API server does not reach into QEMU's user network.
    """
    return f"cat /var/log/pods/{namespace}_{pod}_*/{container}/*.log 2>/dev/null || true"


def text_of_log(lines: str) -> str:
    """Return the text in what pod_log_command printed."""
    return log_text(lines)


def _renewed(plane: ControlPlane, name: str) -> str:
    look = ("get", "lease", name, "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}", "--ignore-not-found")
    return plane.kubectl(*look, check=False)


def _files(plane: ControlPlane, name: str) -> dict[str, str]:
    """Return path -> content of all that the node needs beside its programs."""
    configuration = settings.kubelet(
        socket=SOCKET,
        authority=STATE / "ca.crt",
        extra={"cgroupDriver": "systemd", "nodeStatusReportFrequency": "10s"},
    )
    runtime = settings.containerd(
        root=Path("/var/lib/containerd"),
        state=Path("/run/containerd"),
        socket=SOCKET,
        networks=STATE / "cni",
        cdi=Path("/etc/cdi"),
        systemd=True,
    )
    return {
        f"{STATE}/ca.crt": plane.authority.certificate.read_text(encoding="ascii"),
        f"{STATE}/kubeconfig": plane.node_kubeconfig(name, SLIRP_HOST).read_text(encoding="utf-8"),
        f"{STATE}/kubelet.json": configuration,
        f"{STATE}/containerd.toml": runtime,
        f"{STATE}/cni/10-pods.conflist": settings.network(SUBNET, Path("/run/test-node-leases")),
        "/etc/modules-load.d/test-node.conf": "overlay\nveth\n",
        f"/etc/systemd/system/{MOUNT_UNIT}": MOUNT,
        "/etc/systemd/system/containerd.service": CONTAINERD,
        "/etc/systemd/system/kubelet.service": KUBELET.format(name=name),
    }


def _put(machine: Machine, files: dict[str, str]) -> None:
    """Send all files as one tar: each ssh command takes a while in an emulated machine."""
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        for path, text in files.items():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        archive = Path(work) / "node.tar"
        owner = ["--owner=0", "--group=0", "--no-same-permissions", "--mode=u=rwX,go=rX"]
        subprocess.run(["tar", "-C", str(tree), *owner, "-cf", str(archive), *sorted({path.split("/")[1] for path in files})], check=True)
        machine.put(archive, "/run/test-node.tar")
    machine.ssh("tar -C / --keep-directory-symlink -xf /run/test-node.tar && rm /run/test-node.tar && modprobe -a overlay veth")


def _ext4(tree: Path, image: Path) -> None:
    used = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    size = used // 1024 + used // 20480 + 8192  # KiB: content, a twentieth for inodes and maps, 8 MiB
    command = [binaries.program("mke2fs"), "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-L", LABEL, "-d", str(tree)]
    subprocess.run([*command, str(image), f"{size}k"], check=True, stdout=subprocess.DEVNULL)


MOUNT = f"""[Unit]
Description=Programs of the test node
[Mount]
What=/dev/disk/by-label/{LABEL}
Where={BIN}
Type=ext4
Options=ro
[Install]
WantedBy=multi-user.target
"""

# The memory-lock limit stays systemd's default, as users have it: raising it would hide a fault that they meet.
CONTAINERD = f"""[Unit]
Description=Container runtime of the test node
RequiresMountsFor={BIN}
After=network.target
[Service]
Environment=PATH={BIN}:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart={BIN}/containerd --config {STATE}/containerd.toml
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=2
TimeoutStartSec=300
[Install]
WantedBy=multi-user.target
"""

KUBELET = f"""[Unit]
Description=Kubelet of the test node
RequiresMountsFor={BIN}
After=containerd.service
Wants=containerd.service
[Service]
Environment=PATH={BIN}:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart={BIN}/kubelet --config {STATE}/kubelet.json --kubeconfig {STATE}/kubeconfig --hostname-override {{name}} --v=2
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""

"""The native node as a host of its own for the roles: devices in its /sys and /dev, and folders that are not the machine's."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fakes.host import FakeHost
from ..harness.work import VENV_BIN, environment
from . import binaries
from .controlplane import ControlPlane
from .node import NativeNode

FAKES = Path(__file__).resolve().parents[1] / "fakes"
GROUPS = {"16": ("01", 3), "17": ("02", 5)}  # group -> bus, and the minor of a memory device that harms nobody


@dataclass(frozen=True)
class Play:
    """One run of ansible-playbook: its exit code, its output, and what its recap counts."""

    code: int
    out: str

    @property
    def changed(self) -> int:
        """Return how many tasks changed something."""
        found = re.search(r"^\S+\s+: .*\bchanged=(\d+)", self.out, re.MULTILINE)
        return int(found[1]) if found else -1


@dataclass
class Stage:
    """Everything is done in the node's own namespaces, where its kubelet, its containers and the plays see the same."""

    plane: ControlPlane
    node: NativeNode
    base: Path
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a command prints in the node."""
        done = subprocess.run(self.node._inside(command), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def play(self, *options: str, **variables: Any) -> Play:
        """Run the role device_plugin on the node; variables without the role's prefix, beside those of the stage."""
        given = {f"device_plugin_{key}": value for key, value in {**self.variables, **variables}.items()}
        tasks = [{"name": "Use the role", "ansible.builtin.include_role": {"name": "vfio.passthrough.device_plugin"}, "vars": given}]
        file = self.base / "play.yml"
        file.write_text(json.dumps([{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
        inventory = f"{self.node.name} ansible_connection=local ansible_python_interpreter={VENV_BIN / 'python'}\n"
        (self.base / "inventory").write_text(inventory, encoding="utf-8")
        command = [str(VENV_BIN / "ansible-playbook"), "-i", str(self.base / "inventory"), str(file), *options]
        env = environment({"ANSIBLE_LOCALHOST_WARNING": "false", "PATH": f"{self.base / 'bin'}:{os.environ.get('PATH', '')}"})
        done = subprocess.run(
            self.node._inside(command),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return Play(done.returncode, done.stdout)


def make_manager(base: Path) -> None:
    """Make the service manager that plays find on their PATH; what it knows is in `services`."""
    for name in ("bin", "services"):
        (base / name).mkdir()
    program = base / "bin/systemctl"
    words = [str(VENV_BIN / "python"), str(FAKES / "systemctl.py"), str(base / "services")]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def make_host(base: Path) -> FakeHost:
    """Make two GPUs, each with its audio function, bound; their nodes are real character devices."""
    host = FakeHost(base)
    for group, (bus, minor) in GROUPS.items():
        for function, id_text, code in (("0", "10de:2684", "030000"), ("1", "10de:22ba", "040300")):
            host.function(f"0000:{bus}:00.{function}", id_text, code, driver="vfio-pci", group=group, real_folder=True)
        os.mknod(base / "dev/vfio" / group, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
    os.mknod(base / "dev/vfio/vfio", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    shutil.copytree("/etc", base / "copy-of-etc", symlinks=True, ignore_dangling_symlinks=True)
    return host


@contextmanager
def made_stage(plane: ControlPlane, node: NativeNode) -> Iterator[Stage]:
    """Set the stage in the node's mount namespace, and clear it away again."""
    base = Path(tempfile.mkdtemp(prefix="vfp-s-"))
    base.chmod(0o755)
    make_host(base)
    make_manager(base)
    mounts = {
        "sys/bus/pci": "/sys/bus/pci",
        "sys/kernel/iommu_groups": "/sys/kernel/iommu_groups",
        "dev/vfio": "/dev/vfio",
        "run": "/run/vfio-passthrough",
        "copy-of-etc": "/etc",
    }
    points = [Path(point) for point in ("/dev/vfio", "/run/vfio-passthrough") if not Path(point).exists()]
    stage = Stage(plane, node, base)
    try:
        for point in points:
            point.mkdir()
        for source, point_name in mounts.items():
            stage.run("mount", "--bind", str(base / source), point_name)
        ctr = [str(binaries.containerd() / "ctr"), "-a", str(node.socket), "-n", "k8s.io"]
        stage.variables = {"form": "daemonset", "ctr": ctr, "kubeconfig": str(plane.kubeconfig), "node_name": node.name}
        yield stage
    finally:
        for point_name in reversed(mounts.values()):
            stage.run("umount", "--lazy", point_name, check=False)
        for point in points:
            point.rmdir()
        shutil.rmtree(base, ignore_errors=True)

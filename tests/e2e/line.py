"""The whole line on real parts: control plane, worker VM as its node, the user's commands. Demo and test share it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.vfio.passthrough.files.image.archive import Entry, names_in, write_image, write_layer

from ..cluster import images
from ..cluster.controlplane import ControlPlane
from ..cluster.worker_node import bin_disk, import_image, install_node, pod_log_command, text_of_log
from ..harness.cache import cached
from ..harness.say import say, step
from ..vm.machine import NAME, Worker
from ..vm.probe import probe_elf

TREE = Path(__file__).parents[2]
RUNTIME = TREE / "plugins/module_utils/hostdev"
RESOURCE = "nvidia.com/AD102_GEFORCE_RTX_4090"
DECLARATION = [{"resource": RESOURCE, "select": {"id": "10de:2684"}}]
PROBE = "localhost/vfio-passthrough-probe:1"
GPUS = ("0000:01:00.0", "0000:02:00.0")
AUDIOS = ("0000:01:00.1", "0000:02:00.1")
SWITCHED_OFF = "intel_iommu=off"
KEPT_FILES = ("/etc/default/grub", "/boot/grub/grub.cfg")
LOOK = "find /etc /usr/lib /usr/local /var/lib /run -xdev '(' -name '*vfio-passthrough*' -o -name hostdev ')' 2>/dev/null"


@dataclass(frozen=True)
class Play:
    """One run of ansible-playbook: its exit code, its output, and the worker's line of the recap."""

    code: int
    out: str

    def recap(self, host: str = NAME) -> dict[str, int]:
        """Return ok, changed, failed ... of a host."""
        found = re.search(rf"^{host}\s+: (.*)$", self.out, re.MULTILINE)
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found.group(1))} if found else {}


def probe_image() -> Path:
    """Return the archive of the guest's kernel image: the bare-metal probe and nothing else."""
    elf = probe_elf()

    def build(out: Path) -> None:
        layer = write_layer(out / "layer.tar", [Entry("probe.elf", elf.read_bytes(), 0o644)])
        write_image(out / "probe.tar", PROBE, [layer], env={}, entrypoint=("/probe.elf",))
        layer.unlink()

    return cached("image-probe", [elf, PROBE], build, "1 s") / "probe.tar"


class Line:
    """A control plane and a worker that is its node; methods are the user's commands and looks from outside."""

    def __init__(self, work: Path, plane: ControlPlane, worker: Worker) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.work, self.plane, self.worker = work, plane, worker
        self.inventory = work / "inventory"
        self.inventory.write_text(f"[hostdev]\n{worker.inventory_line()}\n", encoding="utf-8")
        self.archive = images.launcher_image(RUNTIME)
        (self.image,) = names_in(self.archive)
        self.variables = work / "declaration.yml"
        self.declare(DECLARATION)

    def declare(self, devices: list[dict[str, Any]], **more: Any) -> None:
        """Write the user's variables."""
        values: dict[str, Any] = {
            "hostdev_devices": devices,
            "hostdev_reboot_ok": True,
            "hostdev_kubeconfig": str(self.plane.kubeconfig),
            "hostdev_launcher_image": self.image,
            "hostdev_launcher_archive": str(self.archive),
            "hostdev_ctr": ["/opt/bin/ctr", "--namespace", "k8s.io"],
            **more,
        }
        self.variables.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")

    @staticmethod
    def disks() -> tuple[Path, ...]:
        """Return the disks that the worker needs to become a node with the guest's image."""
        return (bin_disk([probe_image()]),)

    def join(self) -> None:
        """Make the worker a node and load the guest's image there."""
        install_node(self.worker, self.plane, NAME)
        import_image(self.worker, "/opt/bin/images/probe.tar")
        # the image's first menu is not GRUB's own; what is compared before and after has to be
        self.worker.ssh("update-grub 2>/dev/null")

    def play(self, playbook: str, *options: str, variables: dict[str, Any] | None = None, show: bool = False) -> Play:
        """Run a playbook of the collection as a user does; show copies its output to the terminal while it runs."""
        command = [str(TREE / ".venv/bin/ansible-playbook"), "-i", str(self.inventory), f"vfio.passthrough.{playbook}"]
        command += ["-e", f"@{self.variables}", *options]
        if variables:
            command += ["-e", json.dumps(variables)]
        env = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(TREE / ".venv/collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_NOCOWS": "1",
        }
        env |= {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_DEPRECATION_WARNINGS": "false", "ANSIBLE_HOST_KEY_CHECKING": "false"}
        lines: list[str] = []
        with subprocess.Popen(
            command, cwd=self.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        ) as process:
            for line in process.stdout or ():
                lines.append(line)
                if show:
                    sys.stdout.write("    " + line)
                    sys.stdout.flush()
        out = "".join(lines)
        (self.work / f"{playbook}.log").write_text(out, encoding="utf-8")
        return Play(process.returncode, out)

    def site(self, *options: str, show: bool = False) -> Play:
        """Run site.yml."""
        return self.play("site", *options, show=show)

    def vm(self, manifest: Path, state: str = "present", show: bool = False) -> Play:
        """Run vm.yml for a manifest."""
        given = {"hostdev_vm_file": str(manifest), "hostdev_vm_state": state, "hostdev_launcher_emulation": "always"}
        return self.play("vm", variables=given, show=show)

    def release(self, show: bool = False) -> Play:
        """Run release_devices.yml."""
        return self.play("release_devices", show=show)

    def chain(self) -> str:
        """Return the node's own table of every declared device."""
        return self.worker.ssh(
            f"/usr/local/sbin/hostdev explain --launcher-image {self.image} --ctr '/opt/bin/ctr --namespace k8s.io'", check=False
        )

    # -- looks from outside, by ssh and by the API server, not through the product -----------------------------------

    def drivers(self, addresses: Sequence[str]) -> list[str]:
        """Return the driver of each function, "" for none."""
        text = "; ".join(f"basename $(readlink /sys/bus/pci/devices/{one}/driver || echo /-)" for one in addresses)
        return ["" if word == "-" else word for word in self.worker.ssh(text).split()]

    def cmdline(self) -> str:
        """Return the running kernel's command line."""
        return self.worker.ssh("cat /proc/cmdline").strip()

    def files(self) -> dict[str, str]:
        """Return the content of the boot loader's files."""
        return {path: self.worker.ssh(f"cat {path}") for path in KEPT_FILES}

    def left_over(self) -> list[str]:
        """Return everything with our name that is on the worker: files, units, images."""
        found = self.worker.ssh(f"{LOOK}; true").split()
        # layers of removed images are the container runtime's to forget
        units = self.worker.ssh("systemctl list-unit-files --no-legend 'vfio-passthrough*' | cut -d' ' -f1").split()
        names = self.worker.ssh("/opt/bin/ctr -n k8s.io images ls -q | grep vfio-passthrough-launcher || true").split()
        return [one for one in (*found, *units, *names) if "/pods/" not in one and not one.startswith("/var/lib/containerd/")]

    def allocatable(self) -> str:
        """Return how many of the resource the node offers, as the API server says; "" when it never heard of it."""
        return str(self.plane.get("node", NAME)["status"]["allocatable"].get(RESOURCE, ""))

    def log(self, pod: str) -> str:
        """Return the launcher's log, the guest's serial lines in it."""
        return text_of_log(self.worker.ssh(pod_log_command("default", pod, "compute")))


def start(work: Path, plane: ControlPlane, *, iommu: Any = True, arguments: str = SWITCHED_OFF) -> Line:
    """Start the worker by GRUB with the IOMMU switched off in its boot arguments, and make it a node."""
    images.launcher_image(RUNTIME)
    disks = Line.disks()
    with step("start the worker VM (Debian 13, GRUB, two emulated GPUs)", "35 s"):
        worker = Worker.start(
            work / "worker", boot="grub", memory_mib=4096, extra_disks=disks, gpus=2, iommu=iommu, default_arguments=arguments
        )
    try:
        line = Line(work, plane, worker)
        line.join()
    except BaseException:
        worker.stop()
        raise
    say(f"to look around: ssh -p {worker.port} -i {worker.key} root@127.0.0.1")
    return line

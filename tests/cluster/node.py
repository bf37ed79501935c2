"""A node on this machine: containerd and kubelet in mount and process namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import final

from ansible_collections.vfio.passthrough.files.image.archive import names_in

from ..harness.say import step
from . import binaries, images, settings
from .controlplane import LOOPBACK, ControlPlane
from .processes import Children, child_of, free_ports

CGROUPS = Path("/sys/fs/cgroup")
SYS_RESOURCE = 1 << 24  # linux/capability.h
KUBELET = Path("/var/lib/kubelet")  # the device plugin folder below it is a constant of the kubelet, whatever --root-dir says
# Folders of the machine that the node's programs insist on; inside the node's mount namespace they are folders of its state.
PRIVATE = {"kubelet": KUBELET, "log": Path("/var/log"), "containerd-run": Path("/run/containerd"), "netns": Path("/run/netns")}


@final
class NativeNode:
    """Context manager: a Ready node beside a control plane on this machine.

    Its kubelet sees /var/lib/kubelet where everybody else sees `kubelet_folder`; so a device plugin that is started outside, with
    `device_plugins` as its folder, reaches this kubelet and no other. The node's processes, containers included, live in one
    process namespace and end with it, and with them all their mounts. `cdi` is the folder of CDI specs.
    """

    def __init__(self, plane: ControlPlane, name: str = "native", folder: Path | None = None) -> None:
        self.plane = plane
        self.name = name
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="vfp-n-")) if folder is None else folder  # short: socket paths end at 107 bytes
        self.kubelet_folder = self.folder / "kubelet"
        self.device_plugins = self.kubelet_folder / "device-plugins"
        self.cdi = self.folder / "cdi"
        self.socket = self.folder / "containerd.sock"
        self.port, self.health_port = free_ports(2)
        # Pods' addresses get routes on this machine: a net of its own for each node that runs at the same time.
        self.subnet = f"100.{64 + (self.port >> 8) % 64}.{self.port & 255}.0/24"
        self.children = Children(self.folder / "logs")
        self.snapshotter = "overlayfs"
        self._holder = 0

    def __enter__(self) -> NativeNode:
        try:
            with step(f"start node {self.name}", "3 s"):
                self._prepare()
                self._start_containerd()
                for archive in (images.pause_image(), images.busybox_image()):
                    self.import_image(archive)
                self.start_kubelet()
                self.children.wait_for(f"Ready of node {self.name}", self.ready)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End everything that runs in the node, containers included; remove its state when the folder was ours to make."""
        containers = self._containers()
        self._stop_kubelet(signal.SIGTERM)
        self.children.stop("namespaces", signal.SIGKILL)  # unshare ignores SIGTERM; its death kills the namespace's first process
        self.children.end()
        _remove_cgroups(containers)
        self.plane.kubectl("delete", "node", self.name, "--ignore-not-found", check=False)
        if self._temporary:
            _remove(self.folder)

    def ready(self) -> bool:
        """Tell whether the API server has this node as Ready."""
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self.plane.kubectl("get", "node", self.name, "-o", path, "--ignore-not-found", check=False) == "True"

    def measures_disk(self) -> bool:
        """Tell whether the kubelet can offer ephemeral storage: it finds no size behind tmpfs, overlayfs and their like."""
        return os.major(self.folder.stat().st_dev) != 0

    def start_kubelet(self) -> None:
        """Start the kubelet and wait until it answers and its device plugin socket is there."""
        certificate, key = self.plane.authority.folder / "apiserver.crt", self.plane.authority.folder / "apiserver.key"
        extra = {
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": self.measures_disk(),
            "makeIPTablesUtilChains": False,  # the packet filter is the machine's
            "port": self.port,
            "healthzPort": self.health_port,
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "volumePluginDir": str(self.folder / "volume-plugins"),
        }
        config = self.folder / "kubelet.json"
        config.write_text(settings.kubelet(socket=self.socket, authority=self.plane.authority.certificate, extra=extra), encoding="utf-8")
        kubeconfig = self.plane.node_kubeconfig(self.name)
        program = self.plane.programs / "kubelet"
        (self.device_plugins / "kubelet.sock").unlink(missing_ok=True)
        command = [str(program), f"--config={config}", f"--kubeconfig={kubeconfig}", f"--hostname-override={self.name}", "--v=2"]
        self.children.start("kubelet", self._inside(command))
        self.children.wait_for("kubelet", lambda: self._healthy() and (self.device_plugins / "kubelet.sock").is_socket())

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again; its device plugin socket is a new one afterwards, containers keep running."""
        self._stop_kubelet(signal.SIGTERM)
        self.start_kubelet()

    def kill_kubelet(self) -> None:
        """Kill the kubelet and leave it dead; start_kubelet brings it back."""
        self._stop_kubelet(signal.SIGKILL)

    def import_image(self, archive: Path) -> str:
        """Load a docker archive and return the name in it; pods use that with imagePullPolicy Never."""
        how = [] if self.snapshotter == "overlayfs" else ["--local", f"--snapshotter={self.snapshotter}"]
        self.ctr("images", "import", *how, str(archive))
        return names_in(archive)[0]

    def ctr(self, *arguments: str) -> str:
        """Return what containerd's own client prints, in the namespace that the kubelet uses."""
        command = [str(binaries.containerd() / "ctr"), "-a", str(self.socket), "-n", "k8s.io", *arguments]
        done = subprocess.run(self._inside(command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def pod_log(self, namespace: str, pod: str, container: str) -> str:
        """Return what a container wrote so far, all its restarts in order; empty when it never started."""
        folders = (self.folder / "log" / "pods").glob(f"{namespace}_{pod}_*/{container}")
        files = [file for folder in folders for file in folder.glob("*.log")]
        return "".join(log_text(file.read_text(encoding="utf-8")) for file in sorted(files, key=lambda file: int(file.stem)))

    def _prepare(self) -> None:
        for place in (self.cdi, self.folder / "cni", *(self.folder / name for name in PRIVATE)):
            place.mkdir(parents=True, exist_ok=True)
        (self.folder / "cni" / "10-pods.conflist").write_text(settings.network(self.subnet, self.folder / "leases"), encoding="utf-8")
        self.snapshotter = "overlayfs" if _overlay_works(self.folder) else "native"
        binds = [f"mkdir -p {inside} && mount --bind {self.folder / name} {inside}" for name, inside in PRIVATE.items()]
        # bash, as the namespace's first process, reaps the shims' orphans while it waits.
        script = " && ".join(["mount --make-rshared /", *binds, f"touch {self.folder / 'prepared'}", "{ sleep infinity & wait; }"])
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave"]
        holder = self.children.start("namespaces", [*unshare, "bash", "-c", script])
        self.children.wait_for("namespaces of the node", (self.folder / "prepared").exists)
        self._holder = child_of(holder.pid) or 0

    def _start_containerd(self) -> None:
        text = settings.containerd(
            root=self.folder / "containerd",
            state=self.folder / "containerd-state",
            socket=self.socket,
            networks=self.folder / "cni",
            cdi=self.cdi,
            snapshotter=self.snapshotter,
            privileged=False,
            runc=_runc(self.folder),
        )
        config = self.folder / "containerd.toml"
        config.write_text(text, encoding="utf-8")
        path = f"{binaries.containerd()}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        command = [str(binaries.containerd() / "containerd"), "--config", str(config)]
        self.children.start("containerd", self._inside(command), env={"PATH": path})
        self.children.wait_for("containerd", self._containerd_answers)

    def _containers(self) -> list[str]:
        try:
            return self.ctr("containers", "ls", "-q").split() if self._containerd_answers() else []
        except RuntimeError:
            return []

    def _containerd_answers(self) -> bool:
        try:
            return self.socket.is_socket() and bool(self.ctr("version"))
        except RuntimeError:
            return False

    def _inside(self, command: Sequence[str]) -> list[str]:
        enter = ["nsenter", "--target", str(self._holder), "--mount", "--pid", "--"]
        return [*enter, *command]

    def _stop_kubelet(self, sign: int) -> None:
        entered = self.children.running.pop("kubelet", None)
        if entered is None:
            return
        inner = child_of(entered.pid)  # nsenter waits for the kubelet, which is its child in the process namespace
        if inner is not None:
            os.kill(inner, sign)
        try:
            entered.wait(20)
        except subprocess.TimeoutExpired:
            if inner is not None:
                os.kill(inner, signal.SIGKILL)
            entered.kill()
            entered.wait()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.health_port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


# A container that asks for what this machine's root lacks could not start: it is made without.
LESSER_RUNC = """#!/bin/sh
former=
for word; do
    case $former in
        --bundle) file=$word/config.json ;;
        --process) file=$word ;;
        *) file= ;;
    esac
    if [ -n "$file" ]; then sed -i -e 's/,"{capability}"//g' -e 's/"{capability}",\\?//g' "$file"; fi
    former=$word
done
exec runc "$@"
"""


def _runc(folder: Path) -> str:
    """Return the program that makes containers: runc, or where root lacks CAP_SYS_RESOURCE one that asks for the rest."""
    effective = next(line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("CapEff:"))
    if int(effective.split()[1], 16) & SYS_RESOURCE:
        return "runc"
    program = folder / "lesser-runc"
    program.write_text(LESSER_RUNC.format(capability="CAP_SYS_RESOURCE"), encoding="ascii")
    program.chmod(0o755)
    return str(program)


def log_text(lines: str) -> str:
    """Return the text in a log of the container runtime interface: each line a time, a stream, F or P (no line end), the text."""
    parts: list[str] = []
    for line in lines.splitlines():
        fields = line.split(" ", 3)
        if len(fields) == 4:
            parts.append(fields[3] + ("" if fields[2] == "P" else "\n"))
    return "".join(parts)


def _overlay_works(folder: Path) -> bool:
    tree = folder / "overlay-trial"
    for name in ("lower", "upper", "work", "merged"):
        (tree / name).mkdir(parents=True)
    options = f"lowerdir={tree}/lower,upperdir={tree}/upper,workdir={tree}/work"
    command = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(tree / "merged")]
    done = subprocess.run(command, capture_output=True, check=False)
    shutil.rmtree(tree, ignore_errors=True)
    return done.returncode == 0


def _remove(folder: Path) -> None:
    """Remove a node's state; its mounts go with the last process of the namespace, a moment after the first one's end."""
    for _attempt in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def _remove_cgroups(containers: Sequence[str]) -> None:
    """Remove the control groups that killed containers leave (one per controller where the machine has version 1)."""
    for container in containers:
        for group in [CGROUPS / "k8s.io" / container, *CGROUPS.glob(f"*/k8s.io/{container}")]:
            with suppress(OSError):
                group.rmdir()

"""A container as far as the grant socket sees it, with the limits that container runtimes set by default.

    grant_peer.py UID MEMLOCK <ANSWERS

ANSWERS is the kubelet's: a JSON list of the answers to Allocate that the one container is made from. In a mount
namespace of its own a root is made with their nodes (root's, mode 0600) and mounts, the memory-lock limit becomes
8 MiB, root is given up for UID, and each mounted socket is asked for MEMLOCK bytes by the launcher's own client.
Prints {"nodes": {path: [uid, gid, mode]}, "limits": [soft, hard], "opened": [path], "fault": text, "handed": {...} or null};
handed is about the descriptor from KubeVirt's iommufd.sock, where there is one: {"device": [major, minor], "by_process": whether
locked memory is counted by process, "space": the id of the address space that it made}.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.grant_client import GrantClient

DEFAULT_LIMIT = 8 << 20
HANDOVER = "/var/run/kubevirt/iommufd.sock"
# include/uapi/linux/iommufd.h
IOAS_ALLOC, OPTION, GET = 0x3B81, 0x3B87, 1


def furnish(top: Path, answers: list[dict[str, Any]]) -> list[str]:
    """Make what the answers give a container below its root; return its nodes."""
    nodes: dict[str, str] = {one["container_path"]: one["host_path"] for answer in answers for one in answer.get("devices", [])}
    for path, source in nodes.items():
        place = top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, 0o600 | stat.S_IFCHR, os.stat(source).st_rdev)
    for mount in (one for answer in answers for one in answer.get("mounts", [])):
        place = top / mount["container_path"].lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (place.mkdir if os.path.isdir(mount["host_path"]) else place.touch)()
        subprocess.run(["mount", "--bind", mount["host_path"], str(place)], check=True)
    return list(nodes)


def enter(top: Path, uid: int) -> None:
    """Become the container's process."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (DEFAULT_LIMIT, DEFAULT_LIMIT))
    os.chroot(top)
    os.chdir("/")
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def opened(paths: list[str]) -> list[str]:
    """Return the nodes that this process can open for reading and writing."""
    able = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError:
            continue
        able.append(path)
    return able


def handed() -> dict[str, Any] | None:
    """Take the descriptor that is handed over, as KubeVirt's launcher does, and use it; None where there is no socket."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(HANDOVER)
        except FileNotFoundError:
            return None
        _byte, files, _flags, _address = socket.recv_fds(line, 1, 1)
        line.sendall(b"\0")
    option = bytearray(struct.pack("=IIHHIQ", 24, 0, GET, 0, 0, 0))
    fcntl.ioctl(files[0], OPTION, option)
    space = bytearray(struct.pack("=III", 12, 0, 0))
    fcntl.ioctl(files[0], IOAS_ALLOC, space)
    number = os.fstat(files[0]).st_rdev
    return {
        "device": [os.major(number), os.minor(number)],
        "by_process": bool(struct.unpack("=IIHHIQ", option)[-1]),
        "space": struct.unpack("=III", space)[-1],
    }


def main() -> None:
    """Be the container, ask, and say what came of it."""
    uid, memlock = int(sys.argv[1]), int(sys.argv[2])
    answers = json.load(sys.stdin)
    top = Path(tempfile.mkdtemp(prefix="peer-"))
    # device nodes of a file system that systemd mounts nodev would not open
    subprocess.run(["mount", "-t", "tmpfs", "-o", "dev", "peer", str(top)], check=True)
    top.chmod(0o755)
    nodes = furnish(top, answers)
    enter(top, uid)
    fault = ""
    try:
        GrantClient().ask(memlock)
    except Fault as refused:
        fault = refused.text()
    states = {path: os.stat(path) for path in nodes}
    said = {
        "nodes": {path: [state.st_uid, state.st_gid, state.st_mode & 0o777] for path, state in states.items()},
        "limits": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
        "opened": opened(nodes),
        "fault": fault,
        "handed": handed(),
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()

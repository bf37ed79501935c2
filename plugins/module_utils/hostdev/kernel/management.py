"""Through which of its own addresses the machine is managed or gets its storage, each with what shows it."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping

from ..device.faults import Fault
from ..root import Root, entries, key_values, read_text

_ESTABLISHED = "01"
_SSH_PORT = 22
# the agents of distributions that put the kubelet into a program of their own take its flag
_KUBELETS = ("kubelet", "k3s", "rke2")
_NODE_IP = re.compile(r"--node-ip[=\0]([^\0]+)")


def management_addresses(root: Root, given: Iterable[str] = ()) -> Mapping[str, str]:
    """Return, by address as text, why the machine needs it: given ones, SSH connections on any port, the connection of this run,
    the kubelet's --node-ip, and those from which storage in the network is reached (NFS, iSCSI, NVMe)."""
    processes = [(pid, read_text(root.proc(pid, "comm")) or "") for pid in entries(root.proc()) if pid.isdigit()]
    found = [
        *((address, "named as one") for address in given),
        *((address, "an SSH connection is open") for address in _ssh_connections(root, processes)),
        *((address, "this run came over it") for address in _own_connection(root)),
        *((address, "the kubelet's --node-ip") for address in _node_addresses(root, processes)),
        *_storage_addresses(root),
    ]
    return {_plain(address): why for address, why in reversed(found)}


def _plain(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.strip().partition("%")[0])
    except ValueError:
        return address.strip()
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _ssh_connections(root: Root, processes: Iterable[tuple[str, str]]) -> Iterator[str]:
    # newer daemons serve a connection by sshd-session; another port shows in the owner of the socket only
    daemons = [pid for pid, name in processes if name.startswith(("sshd", "dropbear"))]
    owned = {_target(root, pid, number) for pid in daemons for number in entries(root.proc(pid, "fd"))}
    for address, port, inode in _established(root):
        if port == _SSH_PORT or f"socket:[{inode}]" in owned:
            yield address


def _target(root: Root, pid: str, number: str) -> str:
    try:
        return os.readlink(root.proc(pid, "fd", number))
    except OSError:
        return ""


def _established(root: Root) -> Iterator[tuple[str, int, str]]:
    """Yield local address, local port and inode of each established TCP connection (Documentation/networking/proc_net_tcp.rst)."""
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in (read_text(root.proc("net", table)) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == _ESTABLISHED:
                host, _colon, port = fields[1].partition(":")
                yield _text(host, family), int(port, 16), fields[9] if len(fields) > 9 else ""


def _text(host: str, family: socket.AddressFamily) -> str:
    # the kernel prints 32-bit words in the machine's own byte order
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))


def _own_connection(root: Root) -> Iterator[str]:
    """sudo takes SSH_CONNECTION (client, its port, our address, our port) away; the shell above it still has it."""
    pid, seen = str(os.getpid()), set[str]()
    while pid not in ("", "0") and pid not in seen:
        seen.add(pid)
        told = key_values((read_text(root.proc(pid, "environ")) or "").replace("\0", "\n"))
        parts = told.get("SSH_CONNECTION", "").split()
        if len(parts) == 4:
            yield parts[2]
        parent = re.search(r"^PPid:\s*(\d+)", read_text(root.proc(pid, "status")) or "", re.MULTILINE)
        pid = parent[1] if parent else ""


def _node_addresses(root: Root, processes: Iterable[tuple[str, str]]) -> Iterator[str]:
    for pid, name in processes:
        if name.startswith(_KUBELETS):
            for value in _NODE_IP.findall(read_text(root.proc(pid, "cmdline")) or ""):
                yield from value.split(",")


def _storage_addresses(root: Root) -> Iterator[tuple[str, str]]:
    for server, what in dict(_storage_peers(root)).items():
        try:
            done = root.run(["ip", "-json", "route", "get", server], timeout=30)
            routes = json.loads(done.out) if done.code == 0 and done.out.strip() else []
        except (Fault, ValueError):
            continue
        for route in routes:
            if route.get("prefsrc"):
                yield route["prefsrc"], f"{what} {server} is reached from it"


def _storage_peers(root: Root) -> Iterator[tuple[str, str]]:
    for line in (read_text(root.proc("self", "mountinfo")) or "").splitlines():
        kind, _space, rest = line.partition(" - ")[2].partition(" ")
        server = re.search(r"[ ,]addr=([^, ]+)", rest)
        if kind in ("nfs", "nfs4") and server:
            yield server[1], "the NFS server"
    home = root.sysfs("class", "iscsi_connection")
    for name in entries(home):
        # an unset attribute reads "<NULL>"
        portal = read_text(home / name / "address") or ""
        if portal and not portal.startswith("<"):
            yield portal, "the iSCSI portal"
    home = root.sysfs("class", "nvme")
    for name in entries(home):
        place = re.search(r"traddr=([^,]+)", read_text(home / name / "address") or "")
        if place and read_text(home / name / "transport") in ("tcp", "rdma"):
            yield place[1], "the NVMe target"

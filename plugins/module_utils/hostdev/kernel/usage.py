"""Who uses a PCI function now: what hangs below it in sysfs, and which mounts, networks and processes depend on that."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..device.address import Address
from ..device.holding import Holding
from ..device.pci import Function
from ..root import Root, entries, key_values, read_link_name, read_text
from .network import Network, chain, reaches, read_network
from .pci import DEVICES
from .storage import Mount, Storage, holders, read_storage

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Below:
    """What the kernel made of a function: device nodes ("/dev/dri/card0"), block devices and interfaces by name."""

    nodes: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uses:
    """How one function is in use; empty tuples where it is not. Texts are for messages."""

    system: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    management: tuple[str, ...] = ()
    default_route: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()


def read_uses(root: Root, functions: Sequence[Function], management: Iterable[str] = ()) -> Mapping[Address, Uses]:
    """Return how each function is in use; management are the local addresses through which the machine is managed."""
    below = {function.address: read_below(root, function) for function in functions}
    storage, network = read_storage(root), read_network(root, management)
    opened = open_nodes(root, {node for one in below.values() for node in one.nodes})
    instances = _instances(root)
    return {
        address: Uses(
            processes=tuple(text for node in one.nodes for text in opened.get(node, ())),
            instances=tuple(name for name, folder in instances if f"/{address}/" in folder),
            **_storage_uses(root, one, storage),
            **_network_uses(root, one, network),
        )
        for address, one in below.items()
    }


def read_below(root: Root, function: Function) -> Below:
    """Return what hangs below a function; other functions below a bridge are left out."""
    home = os.path.realpath(root.at(DEVICES) / str(function.address))
    nodes, blocks, interfaces = vfio_nodes(function), [], []
    nodes += _nvidia_nodes(root, function)
    for folder, folders, files in os.walk(home):
        folders[:] = [name for name in folders if not _PCI.fullmatch(name)]
        if os.path.basename(os.path.dirname(folder)) == "net":
            interfaces.append(os.path.basename(folder))
        told = key_values(read_text(Path(folder) / "uevent") or "") if "uevent" in files and folder != home else {}
        if "DEVNAME" in told:
            nodes.append(f"/dev/{told['DEVNAME']}")
        if told.get("DEVTYPE") in ("disk", "partition"):
            blocks.append(os.path.basename(folder))
    controllers = entries(root.at(DEVICES) / str(function.address) / "nvme")
    blocks += [name for name in _shared_namespaces(root, controllers) if name not in blocks]
    return Below(tuple(dict.fromkeys(nodes)), tuple(blocks), tuple(interfaces))


def vfio_nodes(function: Function) -> list[str]:
    """Return the nodes by which a guest or a process holds a function that is on a VFIO driver."""
    if not function.is_usable:
        return []
    own = [f"/dev/vfio/devices/{name}" for name in function.vfio_nodes or ()]
    return own + ([f"/dev/vfio/{function.iommu_group}"] if function.iommu_group else [])


def pods_holding(function: Function, resource: str, holdings: Iterable[Holding]) -> tuple[str, ...]:
    """Return which pods hold a function, as "pod default/vm-a holds 0000:01:00.0 (unit 13 of nvidia.com/X)"; resource: as recorded.

    Whoever was handed one of its nodes holds it, under whatever resource and by whatever plugin; so does who was given its
    group as a unit of its resource.
    """
    nodes = set(vfio_nodes(function))
    mine = [one for one in holdings if nodes & set(one.nodes) or (one.resource, one.id) == (resource, function.iommu_group)]
    return tuple(dict.fromkeys(f"pod {one.owner} holds {function.address} (unit {one.id} of {one.resource})" for one in mine))


def open_nodes(root: Root, nodes: set[str]) -> Mapping[str, tuple[str, ...]]:
    """Return who has the nodes open, as "process 812 (qemu-system-x86) has /dev/vfio/13 open", by /proc/*/fd."""
    found: dict[str, dict[str, None]] = {}
    if not nodes:
        return {}
    own = str(os.getpid())
    for pid in entries(root.proc()):
        if not pid.isdigit() or pid == own:
            continue
        folder = root.proc(pid, "fd")
        for number in entries(folder):
            try:
                target = os.readlink(folder / number)
            except OSError:
                continue
            if target in nodes:
                name = read_text(root.proc(pid, "comm")) or "unknown"
                found.setdefault(target, {})[f"process {pid} ({name}) has {target} open"] = None
    return {node: tuple(texts) for node, texts in found.items()}


def _nvidia_nodes(root: Root, function: Function) -> list[str]:
    # the vendor driver's nodes are not in sysfs; it tells the minor in its own proc folder
    told = read_text(root.proc("driver", "nvidia", "gpus", str(function.address), "information")) or ""
    minor = re.search(r"^Device Minor:\s*(\d+)", told, re.MULTILINE)
    return [f"/dev/nvidia{minor[1]}"] if minor else []


def _shared_namespaces(root: Root, controllers: Sequence[str]) -> list[str]:
    # with native NVMe multipath the namespace hangs below a virtual subsystem, not below the controller
    home = root.sysfs("class", "nvme-subsystem")
    names = [(folder, entries(home / folder)) for folder in entries(home)]
    return [name for _folder, members in names if set(controllers) & set(members) for name in members if re.fullmatch(r"nvme\d+n\d+", name)]


def _instances(root: Root) -> list[tuple[str, str]]:
    home = root.sysfs("bus", "mdev", "devices")
    return [(f"mediated device {name}", os.path.realpath(home / name)) for name in entries(home)]


def _storage_uses(root: Root, below: Below, storage: Storage) -> dict[str, tuple[str, ...]]:
    own = set(below.blocks)
    mounts: list[Mount] = [mount for mount in storage.mounts if mount.blocks & own]
    swaps = [f"swap on {name}" for name, blocks in storage.swaps if blocks & own]
    pools = [name for name, blocks in storage.pools if blocks & own]
    held = [f"{name} is held by {holder}" for name in below.blocks for holder in holders(root, name)]
    return {
        "system": tuple([str(mount) for mount in mounts if mount.is_system] + swaps),
        "mounts": tuple(str(mount) for mount in mounts if not mount.is_system),
        "holders": tuple(held + pools),
    }


def _network_uses(root: Root, below: Below, network: Network) -> dict[str, tuple[str, ...]]:
    management, routes, rest = [], [], []
    for name in below.interfaces:
        vital = network.management_interfaces
        management += [f"{one} carries the management address {vital[one]}" for one in reaches(root, name, vital)]
        routes += [f"{one} has the default route" for one in reaches(root, name, network.default_routes)]
        own = chain(root, name)
        rest += [f"{one} has the address {address}" for one, address in network.addresses if one in own]
        master = read_link_name(root.sysfs("class", "net", name, "master"))
        rest += [f"{name} is a member of {master}"] if master else []
    return {"management": tuple(management), "default_route": tuple(routes), "network": tuple(rest)}

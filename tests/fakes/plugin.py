"""The device plugin service in a thread, over a made host with two units of each kind that is asked for, and a stand-in kubelet."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import IOMMUFD, MDEV, NODE, PCI, USB
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.nodes import IOMMU
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.iommufd import open_iommu
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import Service
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.waking import Waker
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import FakeKubelet, until

RESOURCE = "example.com/gpu"
HEALTHY, A_LOST = {"16": "Healthy", "17": "Healthy"}, {"16": "Unhealthy", "17": "Healthy"}


@dataclass(frozen=True)
class Stand:
    """How two units of one kind, A and B, stand on a bench.

    resource: the name unless another one is asked for. entry: what the declaration says beside it. ids: of A and B with this name.
    nodes: of A and B, on the made host. make: puts both units there. renew: makes a node that is gone.
    """

    resource: str
    entry: dict[str, Any]
    ids: tuple[str, str]
    nodes: tuple[str, str]
    make: Callable[[FakeHost], object]
    renew: Callable[[FakeHost, str], Path]


def _pci(host: FakeHost) -> None:
    host.node("vfio")
    for bus, group in (("01", "16"), ("02", "17")):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group, files={"numa_node": "1\n"})
        host.node(group)


def _mdev(host: FakeHost) -> None:
    host.node("vfio")
    host.function("0000:65:00.0", "10de:1eb8", "030200", driver="nvidia", group="1", files={"numa_node": "1\n"})
    for uuid, group in (("53764d0e-85a0-42b4-af5c-2046b460b1dc", "100"), ("54444d0e-85a0-42b4-af5c-2046b4bbb1aa", "101")):
        host.mdev(uuid, group=group)
        host.node(group)


def _usb(host: FakeHost) -> None:
    host.usb("1-1", device=2)
    host.usb("1-2", device=3)


def _empty(host: FakeHost, path: str) -> Path:
    return host.write(path, "")


STANDS = {
    PCI: Stand(RESOURCE, {"select": {"id": "10de:2684"}}, ("16", "17"), ("/dev/vfio/16", "/dev/vfio/17"), _pci, _empty),
    MDEV: Stand(
        "example.com/vgpu", {"select": {"mdev_type": "GRID T4-1Q"}}, ("100", "101"), ("/dev/vfio/100", "/dev/vfio/101"), _mdev, _empty
    ),
    USB: Stand(
        "example.com/stick",
        {"select": {"usb": {"vendor": "46f4", "product": "0001"}}},
        ("1-1", "1-2"),
        ("/dev/bus/usb/001/002", "/dev/bus/usb/001/003"),
        _usb,
        _empty,
    ),
    NODE: Stand(
        "devices.kubevirt.io/kvm",
        {"node": "/dev/kvm", "count": 2},
        ("kvm0", "kvm1"),
        ("/dev/kvm", "/dev/kvm"),
        partial(FakeHost.char, path="/dev/kvm"),
        FakeHost.char,
    ),
    IOMMUFD: Stand(
        "devices.kubevirt.io/iommufd",
        {"node": "/dev/iommu", "count": 10},
        ("iommufd0", "iommufd1"),
        ("/dev/iommu", "/dev/iommu"),
        partial(FakeHost.char, path="/dev/iommu"),
        FakeHost.char,
    ),
}


class TimedWaker(Waker):
    """A waker that tells whether the loop waits for events alone: what it would do by itself within 20 s is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def wait(self, seconds: float, earliest: float) -> bytes:
        self._seconds = seconds
        told = super().wait(seconds, earliest)
        self._seconds = 0.0
        return told

    @property
    def idle(self) -> bool:
        return self._seconds > 20 and not select.select([self._read], [], [], 0)[0]


class PluginBench:
    """A host of two units of each kind, a kubelet that may be there, and the service in a thread.

    resource: the name of the only kind's resource, where it matters. iommu_works: whether /dev/iommu does what it is asked.
    """

    def __init__(self, base: Path, kinds: Sequence[str] = (PCI,), resource: str = "") -> None:
        self.host = FakeHost(base)
        self.stands = {kind: STANDS[kind] for kind in kinds}
        self.resources = {kind: resource or stand.resource for kind, stand in self.stands.items()}
        for stand in self.stands.values():
            stand.make(self.host)
        self.folder = base / "plugins"
        self.folder.mkdir()
        self.serve(*kinds)
        self.options = PluginOptions(
            plugin_folder=str(self.folder),
            kubelet_root=str(base / "var/lib/kubelet"),
            run_folder=str(base / "r"),
            config=str(base / "etc/devices.json"),
            grants=str(base / "g"),
            release=str(base / "lib/current"),
            check_seconds=1000.0,
        )
        self.kubelet = FakeKubelet(self.folder)
        self.service: Service | None = None
        self.waker = TimedWaker()
        self.iommu_works = True
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def ids(self, kind: str) -> tuple[str, str]:
        """Return the ids of A and B; of nodes they are the resource's name and a number."""
        short = self.resources[kind].rpartition("/")[2]
        return (f"{short}0", f"{short}1") if kind in (NODE, IOMMUFD) else self.stands[kind].ids

    def serve(self, *kinds: str) -> None:
        """Declare these kinds and no other."""
        self.declare(*({"resource": self.resources[kind], **self.stands[kind].entry} for kind in kinds))

    def declare(self, *entries: object) -> None:
        self.host.write("/etc/devices.json", json.dumps({"devices": list(entries)}))

    def start(self) -> None:
        self._end.clear()
        self.service = Service(self.host.root, self.options, opener=self._open_iommu)
        self.waker = self.service.waker = TimedWaker()
        self._thread = threading.Thread(target=self.service.run, args=(self._end.is_set,))
        self._thread.start()

    def stop(self) -> None:
        if self.service is not None and self._thread is not None:
            self._end.set()
            self.service.waker.set()
            self._thread.join()
            self.service.stop()
            self.service = None

    def settle(self) -> None:
        """Wait until only an event makes the service look: what a test does next is seen by its event, or not at all."""
        until(lambda: self.waker.idle, "the service waits for events alone")

    @property
    def alive(self) -> bool:
        """Return whether the service runs."""
        return self._thread is not None and self._thread.is_alive()

    def node(self, group: str) -> Path:
        return self.host.base / "dev/vfio" / group

    def sockets(self) -> list[str]:
        return [one.name for one in self.folder.iterdir() if one.name != "kubelet.sock"]

    def _open_iommu(self, root: Root) -> int:
        """Open what the made host has for it: the one thing that it cannot do is what only that device does."""
        return os.open(root.at(IOMMU), os.O_RDWR) if self.iommu_works else open_iommu(root)

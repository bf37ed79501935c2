"""The device plugin service in a thread, over a made host of two units and a stand-in kubelet."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import Service
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import FakeKubelet

RESOURCE = "example.com/gpu"
HEALTHY, A_LOST = {"16": "Healthy", "17": "Healthy"}, {"16": "Unhealthy", "17": "Healthy"}


class PluginBench:
    """A host of two units, a kubelet that may be there, and the service in a thread."""

    def __init__(self, base: Path, resource: str = RESOURCE) -> None:
        self.resource = resource
        self.host = FakeHost(base)
        for bus, group in (("01", "16"), ("02", "17")):
            self.host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group, files={"numa_node": "1\n"})
            self.host.node(group)
        self.folder = base / "plugins"
        self.folder.mkdir()
        self.declare({"resource": resource, "select": {"id": "10de:2684"}})
        self.options = PluginOptions(
            plugin_folder=str(self.folder),
            run_folder=str(base / "r"),
            config=str(base / "etc/devices.json"),
            grants=str(base / "g"),
            release=str(base / "lib/current"),
            check_seconds=1.0,
        )
        self.kubelet = FakeKubelet(self.folder)
        self.service: Service | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def declare(self, *entries: object) -> None:
        self.host.write("/etc/devices.json", json.dumps({"devices": list(entries)}))

    def start(self) -> None:
        self.service = Service(self.host.root, self.options)
        self._thread = threading.Thread(target=self.service.run, args=(self._end.is_set,))
        self._thread.start()

    def stop(self) -> None:
        if self.service is not None and self._thread is not None:
            self._end.set()
            self.service.waker.set()
            self._thread.join()
            self.service.stop()
            self.service = None

    @property
    def alive(self) -> bool:
        """Return whether the service runs."""
        return self._thread is not None and self._thread.is_alive()

    def node(self, group: str) -> Path:
        return self.host.base / "dev/vfio" / group

    def sockets(self) -> list[str]:
        return [one.name for one in self.folder.iterdir() if one.name != "kubelet.sock"]

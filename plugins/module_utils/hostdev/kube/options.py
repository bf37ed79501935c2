"""What the device plugin service is told: folders, and the declaration in its configuration file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..device.declaration import Declaration, parse_declaration
from ..device.faults import Absent, Fault, Refused
from ..device.grant import FOLDER

_WHAT = "read the declared devices"
_KEYS = ("devices", "permitted_host_devices")


@dataclass(frozen=True)
class PluginOptions:
    """Settings of `hostdev device-plugin`; paths are those of the process, not of a Root.

    plugin_folder: the kubelet's, which does not follow its --root-dir, that is kubelet_root. kubelet_socket: empty for kubelet.sock in it.
    grants: folder of the units' grant folders, at the same path on the host and in containers.
    host_prefix: what the container runtime has to put before /dev/... to find our nodes; empty where it sees our /dev.
    release: the link to the running release; when it points elsewhere the service ends, to be started anew from there.
    check_seconds: how often everything is looked at when no event came. metrics: local address and port, empty for none.
    """

    plugin_folder: str = "/var/lib/kubelet/device-plugins"
    kubelet_root: str = "/var/lib/kubelet"
    kubelet_socket: str = ""
    run_folder: str = "/run/vfio-passthrough"
    config: str = "/etc/vfio-passthrough/devices.json"
    grants: str = FOLDER
    host_prefix: str = ""
    release: str = "/usr/lib/vfio-passthrough/current"
    check_seconds: float = 300.0
    metrics: str = ""

    @property
    def kubelet(self) -> Path:
        """Return the kubelet's registration socket."""
        return Path(self.kubelet_socket) if self.kubelet_socket else Path(self.plugin_folder) / "kubelet.sock"

    @property
    def lock(self) -> Path:
        """Return the file that the one running instance holds."""
        return Path(self.run_folder) / "device-plugin.lock"

    @property
    def state(self) -> Path:
        """Return the file in which others read what is served."""
        return Path(self.run_folder) / "devices.json"

    @property
    def virt_handler(self) -> Path:
        """Return the file that remembers which resources KubeVirt's virt-handler serves."""
        return Path(self.run_folder) / "virt-handler.json"

    @property
    def last_good(self) -> Path:
        """Return the copy of the configuration that was last read without a fault."""
        return Path(self.run_folder) / "last-good.json"


def load_declaration(path: str) -> Declaration:
    """Return the declaration in a node's configuration file, {"devices": [...], "permitted_host_devices": {...}}.

    Absent without the file, Refused with the position of what is wrong in it; nothing else for any content.
    """
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Absent(what=_WHAT, subject=path, cause="no such file", hint="site.yml writes it") from error
    except OSError as error:
        raise Fault(what=_WHAT, subject=path, cause=str(error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise Refused(what=_WHAT, subject=path, cause=f"not JSON: {error}", hint="site.yml writes it") from error
    if not isinstance(given, dict) or set(given) - set(_KEYS):
        raise Refused(what=_WHAT, subject=path, cause=f"an object with the keys {' and '.join(_KEYS)} is needed", hint="site.yml writes it")
    try:
        return parse_declaration(given.get("devices"), given.get("permitted_host_devices"), "devices", "permitted_host_devices")
    except (ValueError, RecursionError) as error:
        # a value that the parser did not expect must not end who reads it again while it serves
        raise Refused(what=_WHAT, subject=path, cause=f"{type(error).__name__}: {error}", hint="site.yml writes it") from error

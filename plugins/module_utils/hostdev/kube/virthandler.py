"""Which resources KubeVirt's virt-handler serves on this node, and is left (design decision 15).

Whoever registers a resource second takes it from the first without a word. virt-handler's device manager serves a resource of
devices.kubevirt.io at kubevirt-NAME.sock in the kubelet's plugin folder, and makes it anew after a start of the kubelet, which
removes all sockets there (KubeVirt pkg/virt-handler/device-manager/generic_device.go).
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Optional

from ..device.faults import Fault
from ..root import write_file
from .config import Stamp, stamp_of

DOMAIN = "devices.kubevirt.io"
# it comes back some seconds after the kubelet, and must come before us
GRACE_SECONDS = 10.0


def socket_of(plugin_folder: Path, resource: str) -> Optional[Path]:
    """Return where virt-handler would serve a resource; None for one that is not KubeVirt's."""
    domain, _slash, name = resource.partition("/")
    return plugin_folder / f"kubevirt-{name}.sock" if domain == DOMAIN else None


def listening(path: Path) -> bool:
    """Return whether somebody accepts connections at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as visitor:
        # it does not wait: a full queue (EAGAIN) is somebody's too
        return visitor.connect_ex(str(path)) in (0, errno.EAGAIN)


def _remembered(memory: Path) -> list[str]:
    try:
        told = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in told if isinstance(one, str)] if isinstance(told, list) else []


class VirtHandler:
    """What it serves here. A resource whose socket went, or at which nobody listens, stays its own for GRACE_SECONDS."""

    def __init__(self, plugin_folder: Path, kubelet: Path, memory: Path, check_seconds: float) -> None:
        """Know what an earlier service left in the file `memory`, which may be absent.

        kubelet: its registration socket. check_seconds: how often a socket that answered is asked again.
        """
        self._plugin_folder, self._kubelet, self._memory, self._check_seconds = plugin_folder, kubelet, memory, check_seconds
        self._start: Optional[Stamp] = None
        # of what it serves: since when nobody answers, None while somebody does
        self._silent: dict[str, Optional[float]] = dict.fromkeys(_remembered(memory))
        self._written = set(self._silent)
        self._answered: dict[str, tuple[Stamp, float]] = {}
        self._stale: dict[str, Stamp] = {}

    def serves(self, resources: Iterable[str], now: float) -> tuple[frozenset[str], Optional[float]]:
        """Return which of the resources it serves at the monotonic time now, and the seconds until to ask again, None for none."""
        start = stamp_of(self._kubelet)
        if start != self._start or start is None:
            # the wait begins with a kubelet that can be registered with
            self._start = start
            self._silent = dict.fromkeys(self._silent)
        left = frozenset(one for one in resources if (path := socket_of(self._plugin_folder, one)) and self._serves(one, path, now))
        self._remember()
        waits = [since + GRACE_SECONDS - now for one, since in self._silent.items() if one in left and since is not None]
        return left, min(waits, default=None)

    def _remember(self) -> None:
        if self._written != set(self._silent):
            self._written = set(self._silent)
            # forgetting costs no more than what it is remembered for
            with suppress(Fault, OSError):
                write_file(self._memory, json.dumps(sorted(self._written)))

    def _serves(self, resource: str, path: Path, now: float) -> bool:
        found = stamp_of(path)
        if self._answers(resource, path, found, now):
            self._silent[resource] = None
            return True
        if resource not in self._silent and found in (None, self._stale.get(resource)):
            return False
        since = self._silent.get(resource)
        since = self._silent[resource] = now if since is None else since
        if now < since + GRACE_SECONDS:
            return True
        del self._silent[resource]
        if found is not None:
            # who begins to listen makes another file
            self._stale[resource] = found
        return False

    def _answers(self, resource: str, path: Path, found: Optional[Stamp], now: float) -> bool:
        if found is None or found == self._stale.get(resource):
            return False
        known, until = self._answered.get(resource, (None, 0.0))
        if found == known and now < until:
            return True
        if listening(path):
            self._answered[resource] = (found, now + self._check_seconds)
            return True
        self._answered.pop(resource, None)
        return False

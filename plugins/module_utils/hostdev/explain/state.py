"""Reader of the device plugin's state file, in which others see what it serves."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from ..root import Root, read_text

PLUGIN_STATE = "/run/vfio-passthrough/devices.json"
PLUGIN_LOCK = "/run/vfio-passthrough/device-plugin.lock"
SERVICE = "vfio-passthrough-device-plugin.service"
LISTS = ("resources", "units", "skipped", "renumbered")


# a service of another release may leave something out
_UNIT: Mapping[str, Any] = {
    "kind": "",
    "name": "",
    "values": [],
    "members": [],
    "numa_node": None,
    "health": "",
    "reason": "",
    "code": "",
    "count": 1,
    "since": "",
}


def read_state(root: Root) -> Optional[Mapping[str, Any]]:
    """Return the state as kube/state.py writes it; None where no service runs or the file is not its own."""
    text = read_text(root.at(PLUGIN_STATE)) if _served(root) else None
    try:
        state = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(state, dict):
        return None
    lists = {name: [one for one in _list(state.get(name)) if isinstance(one, dict)] for name in LISTS}
    return {**state, **lists, "units": [{**_UNIT, **one} for one in lists["units"] if "resource" in one and "id" in one]}


def _served(root: Root) -> bool:
    """Return whether a service runs: a killed one leaves its file behind, but not its lock (kube/process.py)."""
    try:
        handle = os.open(root.at(PLUGIN_LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        # the lock is root's, and who else asks may read the file: a killed service is started again within seconds
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

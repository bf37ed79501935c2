"""Telling the service manager how we are (sd_notify(3)), over the socket that it names."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> bool:
    """Send a state such as "READY=1" to the manager; return False when there is none that listens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.warning("cannot tell the service manager %s: %s", state, error)
        return False
    return True

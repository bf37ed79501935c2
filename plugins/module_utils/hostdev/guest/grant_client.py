"""The launcher's side of the grant socket: ask the node for the device nodes and the memory lock, and look whether it came true."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

from ..device.faults import Absent, Refused, Timeout
from ..device.grant import FOLDER, LONGEST_LINE, SOCKET, Answer, Request, decode_answer, encode_request
from ..root import Root

GIB = 1 << 30
_WHAT = "get the device from the node"
_SERVICE = "look at the vfio-passthrough device plugin on this pod's node"
_FOREIGN = "the device has to come from this project's device plugin, or the container runtime has to raise the limit"
# the service is being restarted, its socket bound anew in the same folder; or its queue is full
_LATER = (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET, errno.EPIPE, errno.EAGAIN)
_SECONDS = 10


def memlock_bytes(guest_bytes: int, devices: int) -> int:
    """Return the bytes that a guest with so many VFIO devices may lock: its memory once per device, and 1 GiB for their BARs; 0 without.

    QEMU pins guest memory and maps device memory; with a virtual IOMMU libvirt counts the guest once per device (KubeVirt
    pkg/hypervisor/kvm/runtime.go does so always).
    """
    return guest_bytes * devices + GIB if devices > 0 else 0


@dataclass(frozen=True)
class GrantClient:
    """Asks at every grant socket that is mounted; holding the mount is holding the device.

    folder: where the units' folders are mounted. patience: seconds to wait for a service that is being restarted.
    say: takes a line for the user. limit: reads the memory-lock limit of this process.
    """

    root: Root = field(default_factory=Root)
    folder: str = FOLDER
    patience: float = 30.0
    say: Callable[[str], None] = field(default=lambda _line: None)
    limit: Callable[[], int] = field(default=lambda: resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])

    def sockets(self) -> list[Path]:
        """Return the places of the grant sockets, one per unit folder (FOLDER/NAME/ID), sorted; the socket itself may be absent."""
        return [unit / SOCKET for unit in sorted(self.root.at(self.folder).glob("*/*")) if unit.is_dir()]

    def ask(self, memlock: int) -> list[Answer]:
        """Ask every unit's service for its nodes and for `memlock` bytes; return the answers.

        Raises the service's own fault when it refuses, Timeout when none answers, Fault when what it promised is not so.
        """
        answers = [self._ask_one(place, Request(memlock)) for place in self.sockets()]
        self._check_limit(memlock, bool(answers))
        self._check_nodes(answers)
        return answers

    def _ask_one(self, place: Path, request: Request) -> Answer:
        deadline = time.monotonic() + self.patience
        told = False
        while True:
            answer = _try_exchange(place, request, last=time.monotonic() >= deadline)
            if answer is not None:
                return answer
            if not told:
                self.say(f"waiting for the device plugin to answer at {place}")
            told = True
            time.sleep(0.2)

    def _check_limit(self, wanted: int, asked: bool) -> None:
        got = self.limit()
        if got == resource.RLIM_INFINITY or got >= wanted:
            return
        said = "the service answered, yet the limit is" if asked else f"no grant socket is mounted below {self.folder}, and the limit is"
        raise Refused(
            what="lock the guest's memory",
            subject=f"{wanted} bytes (guest memory per device, and 1 GiB)",
            cause=f"{said} {got} bytes",
            hint=_SERVICE if asked else _FOREIGN,
        )

    def _check_nodes(self, answers: Sequence[Answer]) -> None:
        for node in [node for answer in answers for node in answer.nodes]:
            path = self.root.at(node)
            if not path.exists():
                cause = "the service named it, but the container does not have it"
                raise Absent(what="use a device node", subject=node, cause=cause, hint=_SERVICE)
            if not os.access(path, os.R_OK | os.W_OK):
                cause = f"uid {os.getuid()} may not read and write it although the service answered"
                raise Refused(what="use a device node", subject=node, cause=cause, hint=_SERVICE)


def _try_exchange(place: Path, request: Request, *, last: bool) -> Optional[Answer]:
    """Return the answer, or None when trying again may help and this is not the last time."""
    try:
        return _exchange(place, request)
    except socket.timeout as error:
        cause = "the service took the request and did not answer"
        raise Timeout(what=_WHAT, subject=str(place), cause=cause, hint=_SERVICE) from error
    except OSError as error:
        if error.errno in _LATER and not last:
            return None
        cause = f"the service does not answer: {error.strerror} (errno {error.errno})"
        raise Timeout(what=_WHAT, subject=str(place), cause=cause, hint=_SERVICE) from error


def _exchange(place: Path, request: Request) -> Answer:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        # without a timeout of Python's: the kernel lets those who wait for a full queue in by turns
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SECONDS, 0))
        line.connect(str(place))
        line.settimeout(_SECONDS)
        line.sendall(encode_request(request))
        parts: List[bytes] = []
        while not (parts and parts[-1].endswith(b"\n")) and sum(map(len, parts)) < LONGEST_LINE:
            part = line.recv(LONGEST_LINE)
            if not part:
                break
            parts.append(part)
    if not parts:
        raise ConnectionResetError(errno.ECONNRESET, "the connection was closed without an answer")
    return decode_answer(b"".join(parts))

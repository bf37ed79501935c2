"""Giving a launcher the device nodes in its own container, without ever touching the host's (KubeVirt: virt-handler's non-root.go)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Optional

from ..device.faults import Absent, Fault, Refused
from ..device.nodes import IOMMU, VFIO
from ..root import Root
from .peer import Peer

_WHAT = "give a launcher its device node"


@dataclass(frozen=True)
class Held:
    """A node of the peer's container: its path there and an O_PATH descriptor of it."""

    path: str
    handle: int


@dataclass(frozen=True)
class Nodes:
    """Nodes of the peer's container that were found to be its own. control: /dev/vfio/vfio, where it has that."""

    root: Root
    peer: Peer
    owned: tuple[Held, ...]
    control: Optional[Held]

    def give(self) -> tuple[str, ...]:
        """Make the peer's uid and gid their owner, and the control node everybody's (mode 0666); return the paths of the owned ones."""
        self.peer.must_live()
        try:
            _change(self)
        except OSError as error:
            hint = "the service needs CAP_CHOWN and CAP_FOWNER"
            raise Fault(what=_WHAT, subject=self.peer.label, cause=str(error), hint=hint) from error
        return tuple(node.path for node in self.owned)


@contextmanager
def opened_nodes(root: Root, peer: Peer, required: Sequence[str], optional: Sequence[str] = (), *, vfio: bool = False) -> Iterator[Nodes]:
    """Open and check nodes in the peer's own root, and change nothing yet.

    optional: those that the container may lack. vfio: those that every VFIO device is used by are such too, /dev/iommu
    and the control node. Absent, or Refused for what is not the container's own node of the host's device.
    """
    with ExitStack() as stack, _root_of(peer) as top:
        owned = [node for path in required if (node := _open(stack, root, top, path, peer, missing_ok=False))]
        for path in dict.fromkeys((*optional, IOMMU) if vfio else optional):
            node = _open(stack, root, top, path, peer, missing_ok=True)
            owned += [node] if node else []
        control = _open(stack, root, top, VFIO, peer, missing_ok=True) if vfio else None
        yield Nodes(root, peer, tuple(owned), control)


@contextmanager
def _root_of(peer: Peer) -> Iterator[int]:
    try:
        handle = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=peer.folder)
    except OSError as error:
        raise Fault(
            what=_WHAT, subject=peer.label, cause=f"its root cannot be opened: {error.strerror}", hint="the service needs CAP_SYS_PTRACE"
        ) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _open(stack: ExitStack, root: Root, top: int, path: str, peer: Peer, *, missing_ok: bool) -> Optional[Held]:
    try:
        handle = _walk(top, path.strip("/").split("/"))
    except FileNotFoundError as error:
        if missing_ok:
            return None
        raise Absent(
            what=_WHAT,
            subject=f"{path} of {peer.label}",
            cause="its container has no such node",
            hint="ask over the socket of a device that the container was given",
        ) from error
    except OSError as error:
        raise Refused(what=_WHAT, subject=f"{path} of {peer.label}", cause=f"{error.strerror}; links are not followed") from error
    stack.callback(os.close, handle)
    _check(root, path, os.fstat(handle), peer)
    return Held(path, handle)


def _walk(top: int, parts: Iterable[str]) -> int:
    """Return an O_PATH descriptor of what stands below `top`, following no link at any step."""
    *folders, name = parts
    here = os.dup(top)
    try:
        for folder in folders:
            there = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = there
        return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _check(root: Root, path: str, theirs: os.stat_result, peer: Peer) -> None:
    subject = f"{path} of {peer.label}"
    if not stat.S_ISCHR(theirs.st_mode):
        raise Refused(what=_WHAT, subject=subject, cause="it is no character device; links are not followed")
    try:
        ours = os.stat(root.at(path))
    except OSError as error:
        raise Absent(
            what=_WHAT, subject=subject, cause=f"the host has no such node ({error.strerror})", hint="run `hostdev devices` on the node"
        ) from error
    if not stat.S_ISCHR(ours.st_mode) or theirs.st_rdev != ours.st_rdev:
        raise Refused(what=_WHAT, subject=subject, cause=f"it is device {_pair(theirs)}, the host's node is {_pair(ours)}")
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
        raise Refused(
            what=_WHAT,
            subject=subject,
            cause="it is the host's own node, mounted into the container",
            hint="do not mount the host's /dev, and do not set hostUsers: false",
        )


def _pair(state: os.stat_result) -> str:
    return f"{os.major(state.st_rdev)}:{os.minor(state.st_rdev)}"


def _change(nodes: Nodes) -> None:
    wanted = (nodes.peer.uid, nodes.peer.gid)
    # chown of an O_PATH descriptor is EBADF; its name below /proc/self/fd works
    for node in nodes.owned:
        os.chown(nodes.root.proc("self", "fd", str(node.handle)), *wanted)
    if nodes.control is not None:
        os.chmod(nodes.root.proc("self", "fd", str(nodes.control.handle)), 0o666)  # noqa: S103
    for node in nodes.owned:
        state = os.fstat(node.handle)
        if (state.st_uid, state.st_gid) != wanted:
            subject = f"{node.path} of {nodes.peer.label}"
            raise Fault(what=_WHAT, subject=subject, cause=f"its owner reads {state.st_uid}:{state.st_gid} afterwards")

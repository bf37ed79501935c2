"""libvirt in session mode inside the launcher: its daemon, a connection to it, and the thread that runs its events."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..device.faults import Absent, Fault, Timeout
from ..root import start_process
from .workplace import Workplace

_IMAGE = "the launcher image has to hold libvirt-daemon, libvirt-daemon-driver-qemu and python3-libvirt (files/launcher/packages.txt)"

_NO_USER = f"the image's /etc/passwd and /etc/group need records for uid {os.getuid()}"

# What libvirt says -> what to do; the first that is found in its message.
_HINTS: tuple[tuple[str, str], ...] = (
    ("cannot allocate memory", "the memory lock is too low or the pod's memory limit too small for guest memory and 1 GiB"),
    ("could not open '/dev/vfio", "the group node is not the launcher's: look at the grant socket and the device plugin on the node"),
    ("group is not viable", "another function of the IOMMU group is not bound to vfio-pci: run site.yml on the node"),
    ("device or resource busy", "another process of the node holds the device"),
    ("/dev/kvm", "the node gives no /dev/kvm: set launcher_emulation to auto or always"),
    ("cannot find suitable emulator", "the launcher image has no qemu-system-x86"),
)


def load_library() -> Any:
    """Return the module libvirt (libvirt-python), or raise Absent; imported this late so that nothing else waits for it."""
    try:
        import libvirt
    except ImportError as error:
        raise Absent(what="use libvirt", subject="the Python module libvirt", cause=str(error), hint=_IMAGE) from error
    return libvirt


def fault_of(error: Exception, what: str, subject: str) -> Fault:
    """Return libvirt's error as a Fault, with what to do where its message is a known one."""
    text = str(error).strip().replace("\n", " / ")
    hint = next((hint for sign, hint in _HINTS if sign in text.lower()), "")
    return Fault(what=what, subject=subject, cause=f"libvirt says: {text}", hint=hint)


@dataclass
class Session:
    """One libvirtd of our own. `waited` counts the seconds that libvirt took for itself until the connection was there."""

    place: Workplace
    daemon: Sequence[str] = ("libvirtd",)
    patience: float = 120.0
    pid: int = 0
    waited: float = 0.0
    clock: Callable[[], float] = field(default=time.monotonic)
    _mark: int = 0

    def start(self) -> None:
        """Start libvirtd; Absent when the image has none."""
        env = self.place.environment(os.environ)
        try:
            self.pid = start_process(self.daemon, env, self.place.daemon_log)
        except Absent as error:
            raise Absent(what="start libvirt", subject=error.subject, cause=error.cause, hint=_IMAGE) from error

    def ended(self, code: int) -> NoReturn:
        """Raise the fault that tells of a libvirtd that has ended by itself."""
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        # what it said before the connection was there is its grumbling about a machine without D-Bus
        said = self.place.log_tail(self._mark)
        hint = _NO_USER if self._mark == 0 and (code == -signal.SIGSEGV or "user record" in said) else ""
        raise Fault(what="keep libvirt running", subject=self.daemon[0], cause=f"it ended with {how}; its last lines: {said}", hint=hint)

    def connect(self, library: Any) -> Any:
        """Wait for libvirtd's socket and return a connection; events are running from then on."""
        library.registerErrorHandler(lambda _context, _error: None, None)
        library.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_events, args=(library,), daemon=True).start()
        begin = self.clock()
        try:
            connection = self._open(library, begin + self.patience)
            self._mark = self.place.log_size()
            return connection
        finally:
            self.waited += self.clock() - begin

    def _open(self, library: Any, deadline: float) -> Any:
        uri = f"qemu+unix:///session?socket={self.place.socket}"
        said = "its socket did not appear"
        while self.clock() < deadline:
            if self.place.socket.exists():
                try:
                    return library.open(uri)
                except library.libvirtError as error:
                    said = str(error)
            time.sleep(0.01)
        cause = f"{said} within {self.patience:.0f} s; its last lines: {self.place.log_tail()}"
        raise Timeout(what="connect to libvirt", subject=str(self.place.socket), cause=cause)


def _run_events(library: Any) -> None:
    while True:
        _run_one(library)


def _run_one(library: Any) -> None:
    try:
        library.virEventRunDefaultImpl()
    except library.libvirtError:
        # the daemon is gone; whoever reaps it ends the launch
        time.sleep(0.1)

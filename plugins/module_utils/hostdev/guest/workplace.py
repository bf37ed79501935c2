"""The launcher's work folder: where each file of a running domain is, and how the folder is made ready for a start."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import List

from ..device.faults import Fault

FOLDER = "/var/run/vfio-passthrough"
_PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# QEMU writes to serial lines itself: libvirt's default would need virtlogd beside libvirtd
_QEMU_CONF = 'stdio_handler = "file"\n'
_STAMP = re.compile(r"^[0-9-]+ [0-9:.+]+: [0-9]+: ")
_MODULES = "libvirt/connection-driver"
_QEMU_MODULES = "qemu"


@dataclass(frozen=True)
class Workplace:
    """The paths below the work folder, an emptyDir that outlives a restart of the container."""

    folder: Path = Path(FOLDER)

    @property
    def ready(self) -> Path:
        """Return the file that exists while the guest runs (the pod's readiness probe looks at it)."""
        return self.folder / "ready"

    @property
    def status(self) -> Path:
        """Return the file with the domain's state as JSON."""
        return self.folder / "status.json"

    @property
    def daemon_log(self) -> Path:
        """Return the file that takes libvirtd's output."""
        return self.folder / "libvirtd.log"

    @property
    def runtime(self) -> Path:
        """Return XDG_RUNTIME_DIR of libvirt."""
        return self.folder / "run"

    @property
    def cache(self) -> Path:
        """Return XDG_CACHE_HOME of libvirt."""
        return self.folder / "cache"

    @property
    def config(self) -> Path:
        """Return XDG_CONFIG_HOME of libvirt; QEMU's monitor sockets are below it."""
        return self.folder / "config"

    @property
    def socket(self) -> Path:
        """Return the session daemon's socket."""
        return self.runtime / "libvirt" / "libvirt-sock"

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return libvirtd's environment: the inherited one with its folders in the work folder and its log on stderr.

        Session libvirtd would otherwise log to the journal where a host has one.
        """
        own = {"XDG_RUNTIME_DIR": self.runtime, "XDG_CACHE_HOME": self.cache, "XDG_CONFIG_HOME": self.config, "HOME": self.folder / "home"}
        paths = {key: str(path) for key, path in own.items()}
        path = inherited.get("PATH")
        programs = f"{path}:{_PROGRAMS}" if path else _PROGRAMS
        return {**inherited, **paths, "PATH": programs, "LIBVIRT_LOG_OUTPUTS": "3:stderr", "LC_ALL": "C"}

    def prepare(self) -> None:
        """Make the folders and remove what a former start in this pod left; Fault when the folder cannot be written.

        libvirtd would take the state files of a former QEMU for a running domain, the kubelet an old `ready` for ours.
        """
        try:
            for old in (self.runtime, self.config):
                shutil.rmtree(old, ignore_errors=True)
            for file in (self.ready, self.status):
                file.unlink(missing_ok=True)
            self.runtime.mkdir(parents=True, mode=0o700)
            for folder in (self.cache, self.config / "libvirt", self.folder / "home"):
                folder.mkdir(parents=True, exist_ok=True)
            (self.config / "libvirt" / "qemu.conf").write_text(_QEMU_CONF, encoding="ascii")
        except OSError as error:
            raise Fault(
                what="prepare the work folder",
                subject=str(error.filename or self.folder),
                cause=f"{error.strerror} (errno {error.errno})",
                hint=f"mount a volume that uid {os.getuid()} can write at {self.folder} (emptyDir with fsGroup)",
            ) from error

    def log_size(self) -> int:
        """Return how many bytes libvirtd has written so far."""
        try:
            return self.daemon_log.stat().st_size
        except OSError:
            return 0

    def log_tail(self, start: int = 0, lines: int = 3) -> str:
        """Return the last lines of libvirtd's output after byte `start`, without their time stamps, as one text."""
        try:
            with open(self.daemon_log, "rb") as file:
                file.seek(start)
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            text = ""
        last = [_STAMP.sub("", line.strip()) for line in text.splitlines() if line.strip()][-lines:]
        return " / ".join(last) or "nothing"


def warm_capabilities(source: Path, cache: Path, emulator: Path, daemon: Path) -> int:
    """Copy libvirt's knowledge of QEMU, probed when the image was built, into its cache; return how many files.

    libvirt believes a file only when the times of QEMU, of QEMU's modules and of itself are those written in it;
    unpacking the image has changed them, so they are set to what they are here. It checks versions and KVM besides, and
    probes again (under emulation most of a minute) when any differs. Nothing is copied where anything is absent.
    """
    try:
        times = {"qemuctime": int(emulator.stat().st_ctime), "selfctime": _daemon_time(daemon)}
        for folder in filter(Path.is_dir, _folders(_QEMU_MODULES)):
            times["qemumoddirmtime"] = int(folder.stat().st_mtime)
        found = sorted(source.glob("*.xml"))
        target = cache / "libvirt" / "qemu" / "cache" / "capabilities"
        target.mkdir(parents=True, exist_ok=True)
        for file in found:
            (target / file.name).write_text(_stamped(file.read_text(encoding="utf-8"), times), encoding="utf-8")
    except OSError:
        return 0
    return len(found)


def _stamped(text: str, times: Mapping[str, int]) -> str:
    for tag, value in times.items():
        text = re.sub(rf"<{tag}>\d+</{tag}>", f"<{tag}>{value}</{tag}>", text, count=1)
    return text


def _daemon_time(daemon: Path) -> int:
    # libvirt's own change time is the latest among the daemon and the driver modules that it has loaded
    modules: List[Path] = [module for folder in _folders(_MODULES) for module in folder.glob("*.so")]
    return max(int(path.stat().st_ctime) for path in [daemon, *modules])


def _folders(name: str) -> List[Path]:
    return [Path(f"/usr/lib/{os.uname().machine}-linux-gnu", name), Path("/usr/lib64", name)]

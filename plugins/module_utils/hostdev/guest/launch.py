"""The launcher: one domain from its description to its end, in a pod without privileges.

Everything that can be checked is checked before anything is started: description, addresses, grant, disks. Then
libvirtd, the domain, and the wait for its end.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Tuple

from ..device.faults import Absent, Fault, Refused
from ..device.grant import FOLDER as GRANTS
from ..device.handover import IN_CONTAINER
from ..device.names import COMPANIONS, PREFIXES
from ..root import Root, read_text
from ..vmi import mounts
from ..vmi.instance import VirtualMachineInstance
from ..vmi.manifest import parse_manifest
from ..vmi.spec import Spec
from .children import adopt_orphans, end_all
from .described import Described, describe
from .diskfiles import make_disk_files
from .disks import disk_files
from .domain import render
from .grant_client import GrantClient, memlock_bytes
from .host_cpus import read_host
from .iommufd import take_iommufd
from .life import Event, Life, listen
from .report import TERMINATION, Outcome, Reporter, device_facts
from .serial import SerialCopy
from .session import Session, load_library
from .settings import DomainSettings
from .sriov import NetworkAddresses, read_network_addresses
from .topology import HostCpus
from .workplace import FOLDER, Workplace, warm_capabilities

VMI = "/etc/vfio-passthrough/vmi.json"
CAPABILITIES = "/usr/share/vfio-passthrough/capabilities"
Render = Callable[[VirtualMachineInstance, Mapping[str, str], DomainSettings], str]


@dataclass(frozen=True)
class LaunchOptions:
    """Where things are and what is wished; the defaults are those of the launcher pod.

    emulation: auto (KVM where /dev/kvm can be used), always, never (no guest without KVM).
    by_numa: place PCI devices by NUMA node. iommufd: the socket at which /dev/iommu is handed over, where it is there.
    pod_info: where the pod shows Multus's annotation; network_patience: seconds to wait for it.
    memory_lock: bytes to ask the grant for, as the pod tells; None where no pod does: then reckoned from the VMI alone.
    grace: seconds; None means the VMI's own. capabilities: libvirt's knowledge of QEMU, made with the image.
    """

    vmi: str = VMI
    folder: str = FOLDER
    grants: str = GRANTS
    emulation: str = "auto"
    memory_lock: Optional[int] = None
    by_numa: bool = False
    iommufd: str = IN_CONTAINER
    pod_info: str = mounts.POD_INFO
    network_patience: float = 60.0
    grace: Optional[float] = None
    capabilities: str = CAPABILITIES
    termination: str = TERMINATION
    daemon: Tuple[str, ...] = ("libvirtd",)
    emulator: str = "/usr/bin/qemu-system-x86_64"
    patience: float = 120.0


def launch(options: LaunchOptions, render: Render = render, library: Optional[Any] = None, root: Optional[Root] = None) -> int:
    """Run one domain to its end and return the exit code.

    render: makes the domain's XML of VMI, environment and settings. library: the module libvirt (None: import it).
    Exit codes: 0 the guest powered off, 1 a fault or our own error (said in log, status file and termination message), 2 guest or QEMU
    crashed, 3 stopped by force or before it ran. Main thread only: signals and children are its own.
    """
    launcher = _Launcher(options, render, library, root or Root())
    try:
        outcome = launcher.run()
    except Fault as fault:
        outcome = Outcome.of_fault(fault)
    except Exception as error:  # noqa: BLE001 - without it the termination message would stay empty
        outcome = launcher.unforeseen(error)
    finally:
        launcher.clean_up()
    return launcher.reporter.end(outcome)


@dataclass
class _Launcher:
    options: LaunchOptions
    render: Render
    library: Optional[Any]
    root: Root
    inbox: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    serial: Optional[SerialCopy] = None
    host: HostCpus = field(default_factory=HostCpus)
    networks: Optional[NetworkAddresses] = None
    iommufd: Optional[int] = None

    def __post_init__(self) -> None:
        self.place = Workplace(Path(self.options.folder))
        self.session = Session(self.place, self.options.daemon, self.options.patience)
        self.reporter = Reporter(self.place, Path(self.options.termination))

    def run(self) -> Outcome:
        adopt_orphans()
        listen(self.inbox)
        vmi = instance_of(read_document(self.root, self.options.vmi))
        self._look(vmi.spec)
        self._render(vmi, emulated(self.root, self.options.emulation, promised=True))
        self.place.prepare()
        self.reporter.state("Starting")
        client = GrantClient(self.root, self.options.grants, say=self.reporter.say)
        told = self.options.memory_lock
        devices = len(vmi.spec.host_devices) + len(vmi.spec.sriov)
        client.ask(memlock_bytes(guest_bytes(vmi), devices) if told is None else told)
        self.iommufd = take_iommufd(self.root, self.options.iommufd)
        # only now: the grant may have made /dev/kvm ours
        settings, xml = self._render(vmi, emulated(self.root, self.options.emulation))
        domain = describe(xml)
        self._say_given(xml)
        make_disk_files(self.root, disk_files(vmi.spec, settings))
        self._warm()
        self.serial = SerialCopy([Path(path) for path in domain.serial_files])
        self.session.start()
        grace = vmi.spec.grace_seconds if self.options.grace is None else self.options.grace
        return self._life(domain, xml, grace).run()

    def _look(self, spec: Spec) -> None:
        """Read what the domain depends on beside manifest and variables, where it does."""
        if spec.domain.cpu.dedicated:
            self.host = read_host(self.root)
        if spec.sriov:
            names = [interface.name for dummy, interface in spec.sriov]
            self.networks = read_network_addresses(self.root, self.options.pod_info, names, self.options.network_patience)

    def _render(self, vmi: VirtualMachineInstance, emulation: bool) -> Tuple[DomainSettings, str]:
        folder = self.options.folder
        settings = DomainSettings(
            emulation=emulation,
            host=self.host,
            by_numa=self.options.by_numa,
            networks=self.networks,
            iommufd=self.iommufd is not None,
            work_dir=folder,
            kernel_dir=f"{folder}/{Path(mounts.KERNEL_BOOT).name}",
            container_disks=f"{folder}/{Path(mounts.CONTAINER_DISKS).name}",
            disks=f"{folder}/{Path(mounts.DISKS).name}",
        )
        return settings, self.render(vmi, os.environ, settings)

    def _say_given(self, xml: str) -> None:
        """Log what the node gave and what became of it: the two ends that people compare when a device does not arrive."""
        prefixes = tuple(f"{prefix}_" for prefix in (*PREFIXES.values(), COMPANIONS))
        given = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(prefixes)]
        for line in (*(given or ["the environment names no device"]), *xml.rstrip().splitlines()):
            self.reporter.say(line)

    def _warm(self) -> None:
        daemon = shutil.which(self.options.daemon[0], path=self.place.environment(os.environ)["PATH"])
        if daemon is not None and Path(self.options.capabilities).is_dir():
            warm_capabilities(Path(self.options.capabilities), self.place.cache, Path(self.options.emulator), Path(daemon))

    def _life(self, domain: Described, xml: str, grace: float) -> Life:
        return Life(
            library=self.library or load_library(),
            session=self.session,
            xml=xml,
            name=domain.name,
            grace=grace,
            reporter=self.reporter,
            inbox=self.inbox,
            iommufd=self.iommufd,
            before_create=self._say_own_time,
            running=lambda _handle: self._running(domain),
        )

    def _say_own_time(self) -> None:
        whole = time.clock_gettime(time.CLOCK_BOOTTIME) - process_start(self.root)
        own = whole - self.session.waited
        self.reporter.say(f"own time {own:.2f} s, libvirt took {self.session.waited:.2f} s to answer; creating the domain")

    def _running(self, domain: Described) -> None:
        self.reporter.state("Running", domain=domain.name, devices=device_facts(domain.devices))
        devices = ", ".join(f"{name} = {address}" for name, address in domain.devices) or "no host device"
        self.reporter.say(f"guest {domain.name} is running with {devices}")

    def unforeseen(self, error: Exception) -> Outcome:
        """Log where an error that is no fault came from and return its outcome."""
        for line in traceback.format_exc().rstrip().splitlines():
            self.reporter.say(line)
        return Outcome.of_error(error)

    def clean_up(self) -> None:
        """End libvirtd and whatever of QEMU is left, and pass on the guest's last words."""
        end_all(self.root, 10.0)
        if self.serial is not None:
            self.serial.finish()


def read_document(root: Root, path: str) -> Any:
    """Return the VMI's document from a JSON file; Absent or Refused when there is none."""
    text = read_text(root.at(path))
    what, hint = "read the VM's description", "the pod mounts its ConfigMap there"
    if text is None:
        raise Absent(what=what, subject=path, cause="no such file, or not readable", hint=hint)
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(what=what, subject=path, cause=f"not JSON: {error}", hint=hint) from error


def instance_of(document: Any) -> VirtualMachineInstance:
    """Return the VMI of a document; Refused for anything else, a VirtualMachine included."""
    manifest = parse_manifest(document)
    if not isinstance(manifest, VirtualMachineInstance):
        cause = "it is a VirtualMachine, which is rendered into instances before"
        raise Refused(what="launch a guest", subject="the VM's description", cause=cause)
    return manifest


def guest_bytes(vmi: VirtualMachineInstance) -> int:
    """Return the guest's memory in bytes, 0 where the manifest says nothing (rendering refuses it)."""
    memory = vmi.spec.domain.guest_memory
    return 0 if memory is None else memory.ceil()


def emulated(root: Root, wish: str, *, promised: bool = False) -> bool:
    """Tell whether QEMU emulates the CPU: wish is auto, always or never; Refused for never without a usable /dev/kvm.

    promised: /dev/kvm need only exist, since the grant will make it ours.
    """
    if wish == "always":
        return True
    node = root.dev("kvm")
    usable = node.exists() and (promised or os.access(node, os.R_OK | os.W_OK))
    if not usable and wish == "never":
        cause = f"uid {os.getuid()} may not read and write it" if node.exists() else "the container does not have it"
        hint = "declare it for the node, or set launcher_emulation to auto or always"
        raise Refused(what="run the guest by KVM", subject="/dev/kvm", cause=cause, hint=hint)
    return not usable


def process_start(root: Root) -> float:
    """Return when this process began, in seconds of CLOCK_BOOTTIME (/proc/self/stat, field 22; resolution of a clock tick)."""
    stat = read_text(root.proc("self", "stat"))
    if stat is None:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")

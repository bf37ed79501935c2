"""The guest's whole domain as libvirt's XML, from the manifest and the addresses that its sources give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, List, Optional

from ..device.faults import Refused
from ..vmi.domain import Cpu, Domain, KernelBoot
from ..vmi.instance import VirtualMachineInstance
from .arrangement import Arrangement, arrange
from .controllers import controller_element
from .disks import VIRTIO_MODEL, disk_elements, needs_scsi
from .elements import element, to_text
from .environment import EnvironmentSource
from .hostdev import hostdev_element
from .iommufd import GROUP
from .memory import backing_element, nodes_element, pins_element, tune_element
from .root_complex import place_on_root_complex
from .settings import DomainSettings
from .sources import Source
from .topology import Topology, topology_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_NO_HOLE = "kubevirt.io/disablePCIHole64"
_ON_ROOT = "kubevirt.io/placePCIDevicesOnRootComplex"
_MEMFD = "kubevirt.io/memfd"
# model of the manifest -> attributes of <cpu>; any other name is a model of libvirt's
_NATIVE: Mapping[str, Mapping[str, str]] = {
    "": {"mode": "host-model"},
    "host-model": {"mode": "host-model"},
    "host-passthrough": {"mode": "host-passthrough"},
}
# an emulated CPU has nothing to do with the host's: QEMU's own model is the quickest, "all it can" is maximum
_EMULATED: Mapping[str, Mapping[str, str]] = {"": {}, "host-model": {}, "host-passthrough": {"mode": "maximum"}}


def render(vmi: VirtualMachineInstance, environment: Mapping[str, str], settings: DomainSettings) -> str:
    """Return the domain's XML for the variables in `environment`; equal input gives equal text.

    Faults: those of the sources (a variable absent, with too few addresses, with one that stands twice or is none).
    """
    return render_from(vmi, (EnvironmentSource(environment),), settings)


def render_from(vmi: VirtualMachineInstance, sources: Sequence[Source], settings: DomainSettings) -> str:
    """Return the domain's XML with the devices' addresses from these sources."""
    topology = topology_of(vmi.spec.domain, settings.host)
    no_hole = vmi.metadata.annotations.get(_NO_HOLE, "").lower() == "true"
    arrangement = arrange(vmi.spec, sources, topology, settings, no_hole=no_hole)
    return to_text(domain_element(vmi, arrangement, topology, settings))


def domain_element(vmi: VirtualMachineInstance, arrangement: Arrangement, topology: Topology, settings: DomainSettings) -> Element:
    """Return the whole of it as an element; Refused without memory, or when two devices would have one alias."""
    memfd = vmi.metadata.annotations.get(_MEMFD) != "false"
    domain = vmi.spec.domain
    memory = domain.guest_memory
    if memory is None:
        raise Refused(what="render a domain", subject=f"{vmi.name}: spec.domain.memory.guest", cause="required, and absent")
    root = element(
        "domain",
        {"type": "qemu" if settings.emulation else "kvm"},
        element("name", text=f"{vmi.metadata.namespace or 'default'}_{vmi.name}"),
        element("uuid", text=vmi.uuid),
        element("memory", {"unit": "b"}, text=memory.ceil()),
        backing_element(topology.page, topology.nodes, memfd=memfd),
        element("vcpu", {"placement": "static"}, text=domain.cpus),
        pins_element(topology.pins, topology.emulator),
        tune_element(topology.nodes),
        _sysinfo(vmi),
        _os(domain, settings),
        element("features", {}, element("acpi"), element("smm", {"state": "on"}) if _secure(domain) else None),
        _cpu(domain, topology, settings),
        _devices(vmi, arrangement, settings),
        element("iommufd", {"enabled": "yes", "fdgroup": GROUP}) if settings.iommufd else None,
    )
    _refuse_equal_aliases(root, vmi.name)
    return root


def _refuse_equal_aliases(root: Element, name: str) -> None:
    seen: List[str] = []
    for alias in (str(found.get("name")) for found in root.iter("alias")):
        if alias in seen:
            hint = "rename one of the devices or disks"
            raise Refused(what="render a domain", subject=name, cause=f"two of its devices would have the alias {alias}", hint=hint)
        seen.append(alias)


def _sysinfo(vmi: VirtualMachineInstance) -> Optional[Element]:
    serial = vmi.spec.domain.firmware.serial
    if not serial:
        return None
    entries = (element("entry", {"name": "uuid"}, text=vmi.uuid), element("entry", {"name": "serial"}, text=serial))
    return element("sysinfo", {"type": "smbios"}, element("system", {}, *entries))


def _secure(domain: Domain) -> bool:
    loader = domain.firmware.bootloader
    return bool(loader and loader.efi and loader.efi.secure_boot is not False)


def _os(domain: Domain, settings: DomainSettings) -> Element:
    firmware = domain.firmware
    loader = firmware.bootloader
    return element(
        "os",
        {},
        element("type", {"arch": "x86_64", "machine": domain.machine.type or "q35"}, text="hvm"),
        *(_efi(_secure(domain), settings) if loader and loader.efi else ()),
        *(_kernel(firmware.kernel_boot, settings) if firmware.kernel_boot else ()),
        element("bios", {"useserial": "yes"}) if loader and loader.bios and loader.bios.use_serial else None,
        element("smbios", {"mode": "sysinfo"}) if firmware.serial else None,
    )


def _efi(secure: bool, settings: DomainSettings) -> Sequence[Element]:
    code, variables = (settings.efi_secure_code, settings.efi_secure_vars) if secure else (settings.efi_code, settings.efi_vars)
    return (
        element("loader", {"readonly": "yes", "secure": "yes" if secure else "no", "type": "pflash"}, text=code),
        element("nvram", {"template": variables}, text=settings.nvram),
    )


def _kernel(boot: KernelBoot, settings: DomainSettings) -> Sequence[Optional[Element]]:
    image = boot.container
    files = (("kernel", image.kernel_path), ("initrd", image.initrd_path)) if image else ()
    return (
        *(element(tag, text=f"{settings.kernel_dir}/{path.lstrip('/')}") for tag, path in files if path),
        element("cmdline", text=boot.kernel_args) if boot.kernel_args else None,
    )


def _cpu(domain: Domain, topology: Topology, settings: DomainSettings) -> Element:
    sockets, cores, threads = domain.topology
    attributes, model = _cpu_model(domain.cpu, emulation=settings.emulation)
    counts = {"sockets": sockets, "cores": cores, "threads": threads}
    return element("cpu", attributes, model, element("topology", counts), nodes_element(topology.nodes))


def _cpu_model(cpu: Cpu, *, emulation: bool) -> tuple[Mapping[str, str], Optional[Element]]:
    modes = _EMULATED if emulation else _NATIVE
    if cpu.model in modes:
        return modes[cpu.model], None
    return {"mode": "custom", "match": "exact"}, element("model", text=cpu.model)


def _devices(vmi: VirtualMachineInstance, arrangement: Arrangement, settings: DomainSettings) -> Element:
    spec = vmi.spec
    usb = any(device.kind == "usb" for device in arrangement.devices)
    devices = element(
        "devices",
        {},
        *(hostdev_element(device) for device in arrangement.devices),
        element("controller", {"type": "usb", "index": 0, "model": "qemu-xhci" if usb else "none"}),
        element("controller", {"type": "scsi", "index": 0, "model": VIRTIO_MODEL}) if needs_scsi(spec) else None,
        *(controller_element(controller) for controller in arrangement.controllers),
        # memory that devices may write to cannot be taken back from the guest
        element("memballoon", {"model": "none"}),
        *disk_elements(spec, settings),
        *_serial(vmi, settings),
        _rng() if spec.domain.devices.rng else None,
    )
    if vmi.metadata.annotations.get(_ON_ROOT) == "true":
        place_on_root_complex(devices)
    return devices


def _serial(vmi: VirtualMachineInstance, settings: DomainSettings) -> Sequence[Element]:
    devices = vmi.spec.domain.devices
    if devices.serial_console is False:
        return ()
    logged = devices.log_serial_console is not False
    source = {"path": settings.serial} if logged else {"mode": "bind", "path": settings.serial_socket}
    return (element("serial", {"type": "file" if logged else "unix"}, element("source", source), element("target", {"port": 0})),)


def _rng() -> Element:
    return element("rng", {"model": VIRTIO_MODEL}, element("backend", {"model": "random"}, text="/dev/urandom"))

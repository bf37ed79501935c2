"""Whether KubeVirt would admit a guest (vmi-create-admitter.go, grace_io_virtualization.go), beyond what the parser refuses. No I/O.

The parser has refused what is malformed or does not belong together; here is what depends on the cluster: its feature gates,
its permitted selectors and its defaults. Each cause has KubeVirt's type and field, and names the nearest value that would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Tuple

from ..device.faults import Refused
from ..vmi import gates as gate
from ..vmi.devices import Gpu
from ..vmi.grace import Selectors, grace_devices, is_ambiguous
from ..vmi.instance import VirtualMachineInstance
from ..vmi.spec import Spec

INVALID, REQUIRED = "Invalid", "Required"
ROOT_COMPLEX, NO_HOLE = "kubevirt.io/placePCIDevicesOnRootComplex", "kubevirt.io/disablePCIHole64"
_ARM = "arm64"


@dataclass(frozen=True)
class Policy:
    """The cluster's side. selectors: pciVendorSelector by resource. architecture, machines: what stands where a spec names none."""

    gates: frozenset[str] = gate.DEFAULTS
    selectors: Selectors = field(default_factory=dict)
    architecture: str = "amd64"
    machines: Mapping[str, str] = field(default_factory=lambda: {"amd64": "q35", _ARM: "virt"})


@dataclass(frozen=True)
class Cause:
    """One reason to refuse: type and field as KubeVirt's, and what would do."""

    type: str
    field: str
    message: str


@dataclass(frozen=True)
class Question:
    """A spec with its annotations, the policy, and where both stand in the document."""

    spec: Spec
    annotations: Mapping[str, str]
    policy: Policy
    path: str
    meta: str

    def gate_off(self, name: str) -> str:
        """Return what to say of a gate, empty when it is on."""
        return "" if name in self.policy.gates else f"feature gate {name} is not enabled; add {name} to launcher_feature_gates"


Causes = Iterator[Cause]


def admit(vmi: VirtualMachineInstance, policy: Policy, path: str = "spec", meta: str = "metadata") -> Tuple[Cause, ...]:
    """Return every cause to refuse the guest; path, meta: where spec and metadata stand, for a VM below its template."""
    question = Question(vmi.spec, vmi.metadata.annotations, policy, path, meta)
    return tuple(cause for rule in RULES for cause in rule(question))


def refuse_inadmissible(vmi: VirtualMachineInstance, policy: Policy, path: str = "spec", meta: str = "metadata") -> None:
    """Raise Refused with all causes when there is any."""
    causes = admit(vmi, policy, path, meta)
    if causes:
        raise Refused(
            what="admit a guest",
            subject=vmi.name,
            cause="; ".join(f"{cause.field}: {cause.message}" for cause in causes),
            hint="mend the manifest, or set the gate that is named",
        )


def _displays(asked: Question) -> Causes:
    def has_ramfb(gpu: Gpu) -> bool:
        display = gpu.display
        # an object without `enabled` becomes true by defaulting: KubeVirt's validator comes before that and lets two pass
        return bool(display and display.enabled is not False and not (display.ramfb and display.ramfb.enabled is False))

    shown = [gpu.name for gpu in asked.spec.domain.devices.gpus if has_ramfb(gpu)]
    if len(shown) > 1:
        yield Cause(
            INVALID,
            f"{asked.path}.GPUs",
            f"configuring multiple displays with ramfb is not valid: {', '.join(shown)}; "
            f"set virtualGPUOptions.display.ramFB.enabled: false on all but {shown[0]}",
        )


def _host_devices(asked: Question) -> Causes:
    off = asked.gate_off(gate.HOST_DEVICES)
    if asked.spec.domain.devices.host_device_list is not None and off:
        yield Cause(INVALID, f"{asked.path}.HostDevices", off)


def _reserved_overhead(asked: Question) -> Causes:
    off = asked.gate_off(gate.RESERVED_OVERHEAD)
    if asked.spec.domain.memory.reserved is not None and off:
        yield Cause(INVALID, f"{asked.path}.domain.memory.reservedOverhead", off)


def _cpus(asked: Question) -> Causes:
    cpu, place = asked.spec.domain.cpu, f"{asked.path}.domain.cpu"
    if cpu.guest_mapping and not cpu.dedicated:
        yield Cause(INVALID, f"{place}.numa.guestMappingPassthrough", "needs dedicated CPUs; set cpu.dedicatedCpuPlacement: true")
    if cpu.guest_mapping and not asked.spec.domain.memory.hugepages:
        yield Cause(INVALID, f"{place}.numa.guestMappingPassthrough", "needs huge pages; set memory.hugepages.pageSize: 2Mi or 1Gi")
    if cpu.isolate_emulator and not cpu.dedicated:
        yield Cause(INVALID, f"{place}.isolateEmulatorThread", "needs dedicated CPUs; set cpu.dedicatedCpuPlacement: true")


def _pages(asked: Question) -> Causes:
    memory, guest = asked.spec.domain.memory, asked.spec.domain.guest_memory
    size = memory.hugepages.page_size.ceil() if memory.hugepages else 0
    if not memory.hugepages or guest is None:
        return
    if size <= 0 or size & (size - 1):
        yield Cause(INVALID, f"{asked.path}.domain.memory.hugepages.pageSize", "has to be the size of a page, as 2Mi or 1Gi")
    elif guest.ceil() % size:
        near = max(size, guest.ceil() // size * size)
        message = f"{guest} is no multiple of the page size {memory.hugepages.page_size}; the nearest that is: {near}"
        yield Cause(INVALID, f"{asked.path}.domain.memory.guest", message)


def grace_causes(asked: Question) -> Causes:
    """Yield what a guest with NVIDIA Grace GPUs lacks; without the gate the first is refused, and nothing else is said."""
    devices = grace_devices(asked.spec, asked.policy.selectors)
    off = asked.gate_off(gate.GRACE)
    exact = [(place, selector) for place, selector in devices if not is_ambiguous(selector)]
    if off:
        yield from (Cause(INVALID, f"{asked.path}.{place}.deviceName", f"is a Grace GPU: {off}") for place, dummy in exact[:1])
        return
    for place, selector in devices:
        if is_ambiguous(selector):
            message = f"{selector} may mean a Grace GPU or not: an exact pciVendorSelector is needed, as 10DE:2342"
            yield Cause(INVALID, f"{asked.path}.{place}.deviceName", message)
    if exact:
        yield from _grace_platform(asked)
        yield from _grace_settings(asked)


def _grace_platform(asked: Question) -> Causes:
    spec, policy = asked.spec, asked.policy
    architecture = spec.architecture or policy.architecture
    machine = spec.domain.machine.type or policy.machines.get(architecture, "")
    if architecture != _ARM:
        yield Cause(INVALID, f"{asked.path}.architecture", f"is {architecture}; Grace GPUs need {_ARM}")
    if not machine.startswith("virt"):
        yield Cause(INVALID, f"{asked.path}.domain.machine.type", f"is {machine}; Grace GPUs need virt or one of its versions")


def _grace_settings(asked: Question) -> Causes:
    if not asked.spec.domain.cpu.dedicated:
        yield Cause(REQUIRED, f"{asked.path}.domain.cpu.dedicatedCpuPlacement", "Grace GPUs need dedicated CPUs; set it to true")
    for name in (gate.NUMA_TOPOLOGY, gate.IOMMUFD):
        if name not in asked.policy.gates:
            yield Cause(INVALID, f"{asked.path}.domain.devices", f"Grace GPUs need it: {asked.gate_off(name)}")
    for name in (ROOT_COMPLEX, NO_HOLE):
        if asked.annotations.get(name) == "true":
            yield Cause(INVALID, f"{asked.meta}.annotations[{name}]", "does not go with Grace GPUs; take the annotation away")


RULES: Tuple[Callable[[Question], Causes], ...] = (_displays, _host_devices, _reserved_overhead, _cpus, _pages, grace_causes)

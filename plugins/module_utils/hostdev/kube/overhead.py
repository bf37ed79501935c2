"""Memory that a launcher pod needs beside its guest's, and how much of both may be locked (KubeVirt 1.9).

pkg/hypervisor/kvm/hypervisorbackend.go and runtime.go. The functions take a spec as it is; `effective` first fills in what a
spec leaves unsaid, as KubeVirt's webhook does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Tuple

from ..vmi.domain import Domain
from ..vmi.spec import Spec

MIB = 1024**2
ARM = "arm64"
# launcher monitor, launcher, virtlogd, virtqemud, QEMU: counted by KubeVirt for its own processes; ours take no more
_FIXED = (25 + 100 + 25 + 40 + 30) * MIB
_IO_THREAD = 8 * MIB
_PER_CPU = 8 * MIB
_PROBE, _PROBES = 10 * MIB, 100 * MIB


@dataclass(frozen=True)
class Sizing:
    """What the manifest does not say. ratio: additionalGuestMemoryOverheadRatio.

    unlocked: resources whose devices are known to be no VFIO (USB, plain nodes), so that they neither cost the GiB nor lock
    memory; empty counts every entry, as KubeVirt does. architecture: of the cluster, where the spec names none.
    """

    ratio: float = 1.0
    unlocked: Collection[str] = ()
    architecture: str = "amd64"


PLAIN = Sizing()
_Part = Callable[[Spec, Sizing], bool]
# what -> MiB, in the order of KubeVirt's sum
_PARTS: Tuple[Tuple[int, _Part], ...] = (
    (32, lambda spec, dummy: spec.domain.devices.graphics is not False),
    (128, lambda spec, sizing: (spec.architecture or sizing.architecture) == ARM),
    (1024, lambda spec, sizing: vfio_count(spec, sizing) > 0),
    (256, lambda spec, dummy: _encrypted(spec.domain)),
    (53, lambda spec, dummy: spec.domain.devices.tpm is not None and spec.domain.devices.tpm.enabled is not False),
    (100, lambda spec, dummy: spec.domain.cpu.dedicated or _is_guaranteed(spec.domain)),
)


def vfio_count(spec: Spec, sizing: Sizing = PLAIN) -> int:
    """Return how many devices count as VFIO: entries of gpus and hostDevices, and SR-IOV interfaces (pkg/vmitrait)."""
    return sum(device.device_name not in sizing.unlocked for dummy, device in spec.host_devices) + len(spec.sriov)


def overhead(spec: Spec, sizing: Sizing = PLAIN) -> int:
    """Return the overhead in bytes; 1 GiB of it once, as soon as there is any VFIO device."""
    domain = spec.domain
    asked, reserved = domain.resources.requests.memory, domain.memory.reserved
    total = _thousands(asked.ceil() if asked else 0) // 512 + _FIXED + _PER_CPU * _vcpus(domain) + _IO_THREAD
    total += sum(size * MIB for size, counts in _PARTS if counts(spec, sizing))
    probes = sum("exec" in probe for probe in (spec.liveness_probe, spec.readiness_probe))
    total += _PROBE * probes + (_PROBES if probes else 0)
    total += reserved.added.ceil() if reserved and reserved.added else 0
    return total + math.trunc(_thousands(total) // 1000 * (sizing.ratio - 1)) * 1000


def locks_memory(spec: Spec, sizing: Sizing = PLAIN) -> bool:
    """Return whether the limit of locked memory has to be raised for this guest at all."""
    reserved = spec.domain.memory.reserved
    return vfio_count(spec, sizing) > 0 or _encrypted(spec.domain) or bool(reserved and reserved.lock == "Required")


def memory_lock(spec: Spec, sizing: Sizing = PLAIN, extra: int | None = None) -> int:
    """Return the limit in bytes: overhead (or `extra`, when another one is known), the guest, and the guest again per further device.

    Libvirt counts the guest once per VFIO device when there is a virtual IOMMU; KubeVirt adds that always.
    """
    memory, asked = spec.domain.memory, spec.domain.resources.requests.memory
    base = memory.max_guest or (asked if asked and asked.value else None) or memory.guest
    size = base.ceil() if base else 0
    first = overhead(spec, sizing) if extra is None else extra
    return first + _thousands(size) + max(0, vfio_count(spec, sizing) - 1) * size


def _thousands(amount: int) -> int:
    return -(-amount // 1000) * 1000


def _vcpus(domain: Domain) -> int:
    """Return KubeVirt's count: the product of what spec.domain.cpu says, else the CPU limit, else the request."""
    cpu, amount = domain.cpu, domain.resources.limits.cpu or domain.resources.requests.cpu
    said = [number for number in (cpu.cores, cpu.sockets, cpu.threads) if number]
    if said:
        return math.prod(said)
    return max(1, amount.ceil()) if amount else 1


def _encrypted(domain: Domain) -> bool:
    security: Any = domain.launch_security
    kinds: Tuple[Mapping[str, Any] | None, ...] = (security.sev, security.snp) if security else ()
    return any(kind is not None for kind in kinds)


def _is_guaranteed(domain: Domain) -> bool:
    """Return whether KubeVirt would call the guest's pod guaranteed: memory and CPU requests equal to their limits."""
    requests, limits = domain.resources.requests, domain.resources.limits
    memory = limits.memory is not None and (requests.memory is None or requests.memory.value == limits.memory.value)
    return memory and limits.cpu is not None and requests.cpu is not None and requests.cpu.value == limits.cpu.value

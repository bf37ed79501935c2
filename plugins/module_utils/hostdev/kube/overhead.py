"""Memory that a launcher pod needs beside its guest's (KubeVirt 1.9, pkg/hypervisor/kvm/hypervisorbackend.go)."""

from __future__ import annotations

from ..vmi.spec import Spec

MIB = 1024**2
# launcher monitor, launcher, virtlogd, virtqemud, QEMU: counted by KubeVirt for its own processes; ours take no more
_FIXED = (25 + 100 + 25 + 40 + 30) * MIB
_IO_THREAD = 8 * MIB
_PER_CPU = 8 * MIB
_GRAPHICS = 32 * MIB
_VFIO = 1024 * MIB
_GUARANTEED = 100 * MIB


def requested_memory(spec: Spec) -> int:
    """Return the bytes of guest memory that the pod asks for: the request, else what the guest sees; 0 when nothing says."""
    amount = spec.domain.resources.requests.memory or spec.domain.guest_memory
    return amount.ceil() if amount else 0


def overhead(spec: Spec) -> int:
    """Return the overhead in bytes; 1 GiB of it once, as soon as there is any host device."""
    pages = -(-requested_memory(spec) // 1000) * 1000 // 512
    parts = (
        pages + _FIXED + _IO_THREAD + _PER_CPU * spec.domain.cpus,
        0 if spec.domain.devices.graphics is False else _GRAPHICS,
        _VFIO if spec.host_devices else 0,
        _GUARANTEED if _is_guaranteed(spec) else 0,
    )
    return sum(parts)


def _is_guaranteed(spec: Spec) -> bool:
    """Return whether KubeVirt would call the guest's pod guaranteed: memory and CPU requests equal to their limits."""
    requests, limits = spec.domain.resources.requests, spec.domain.resources.limits
    memory = limits.memory is not None and (requests.memory is None or requests.memory.value == limits.memory.value)
    return memory and limits.cpu is not None and requests.cpu is not None and requests.cpu.value == limits.cpu.value

"""What the launcher's container asks for (KubeVirt 1.9, pkg/virt-controller/services/renderresources.go)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..device.faults import Refused
from ..vmi import gates as gate
from ..vmi.amounts import CPU, MEMORY
from ..vmi.checks import amounts
from ..vmi.spec import Spec
from .effective import effective
from .overhead import PLAIN, Sizing, overhead, vfio_count

KVM = "devices.kubevirt.io/kvm"
IOMMUFD = "devices.kubevirt.io/iommufd"
GRANT = "vfio.passthrough/grant"
"""One unit of it stands for a group node that another plugin gave the pod, as for the virtual functions of Multus networks."""
_SEV, _TDX = "devices.kubevirt.io/sev", "devices.kubevirt.io/tdx"
_CPU_SHARE = 10
_STORAGE = "50M"
_PAGES = "hugepages-"


@dataclass(frozen=True)
class Asked:
    """Limits and requests by resource, and claims ({name, request}), in the order in which the manifest has them."""

    limits: dict[str, str]
    requests: dict[str, str]
    claims: list[dict[str, str]]


def asked_resources(spec: Spec, gates: Collection[str] = gate.DEFAULTS, sizing: Sizing = PLAIN) -> Asked:
    """Return what the manifest's own amounts and its devices ask for, before overhead; a device is a limit and a request.

    Refused when the manifest's own number for a device's resource is not the number of its entries: KubeVirt takes it and makes
    a pod that Kubernetes refuses or whose guest lacks a device.
    """
    own = spec.domain.resources
    for path, cause in amounts(spec, "spec"):
        raise Refused(what="make a VM's pod", subject=path, cause=cause, hint="leave it out; the entries are counted")
    devices = {name: str(count) for name, count in {**spec.resources, **_special(spec, gates, sizing)}.items()}
    written = [{name: str(amount) for name, amount in side.values.items()} for side in (own.limits, own.requests)]
    return Asked({**written[0], **devices}, {**written[1], **devices}, _claims(spec, gates))


def _special(spec: Spec, gates: Collection[str], sizing: Sizing) -> dict[str, int]:
    security = spec.domain.launch_security
    wanted = {
        _SEV: bool(security and (security.sev is not None or security.snp is not None)),
        _TDX: bool(security and security.tdx is not None),
        GRANT: any(network.multus for network in spec.networks if network.name in {one.name for dummy, one in spec.sriov}),
        # KubeVirt asks for it in every pod; a guest without a device would then need a node that has /dev/iommu
        IOMMUFD: gate.IOMMUFD in gates and vfio_count(spec, sizing) > 0,
    }
    return {name: 1 for name, needed in wanted.items() if needed}


def _claims(spec: Spec, gates: Collection[str]) -> list[dict[str, str]]:
    devices = spec.domain.devices
    lists = ((gate.GPUS_DRA, devices.gpus), (gate.HOST_DEVICES_DRA, devices.host_devices))
    drawn = [(one.claim_name or "", one.request_name or "") for name, entries in lists if name in gates for one in entries if one.drawn]
    if gate.NETWORKS_DRA in gates:
        drawn += [(one.resource_claim.claim_name, one.resource_claim.request_name) for one in spec.networks if one.resource_claim]
    return [{"name": claim, "request": request} for claim, request in drawn]


def container_resources(spec: Spec, *, emulated: bool, gates: Collection[str] = gate.DEFAULTS, sizing: Sizing = PLAIN) -> dict[str, object]:
    """Return the container's resources: devices, the guest's memory (or huge pages) with its overhead, and CPUs."""
    spec = effective(spec)
    asked = asked_resources(spec, gates, sizing)
    limits, requests = {} if emulated else {KVM: "1"}, {"ephemeral-storage": _STORAGE}
    limits.update(asked.limits)
    requests.update(asked.requests)
    _add_memory(spec, limits, requests, overhead(spec, sizing))
    _add_cpu(spec, limits, requests)
    return {"limits": limits, "requests": requests, **({"claims": asked.claims} if asked.claims else {})}


def _add_memory(spec: Spec, limits: dict[str, str], requests: dict[str, str], extra: int) -> None:
    """Put the guest's memory and the overhead in place; with huge pages only the overhead and what exceeds the guest is plain memory."""
    memory, own = spec.domain.memory, spec.domain.resources
    asked, limited = (side.memory.ceil() if side.memory else None for side in (own.requests, own.limits))
    paged = 0
    if memory.hugepages:
        paged = min(asked or 0, memory.guest.ceil()) if memory.guest else asked or 0
        for side in (limits, requests):
            side[f"{_PAGES}{memory.hugepages.page_size}"] = str(paged)
    requests[MEMORY] = str((asked or 0) - paged + extra)
    if limited is not None:
        limits[MEMORY] = str(max(0, limited - paged) + extra)
    if spec.domain.cpu.dedicated:
        limits[MEMORY] = requests[MEMORY]


def _add_cpu(spec: Spec, limits: dict[str, str], requests: dict[str, str]) -> None:
    """Put the CPUs in place: a share of one for each, or whole ones as limit and request, which the kubelet's static policy pins."""
    cpu = spec.domain.cpu
    if cpu.dedicated:
        limits[CPU] = requests[CPU] = str(spec.domain.cpus + cpu.isolate_emulator)
    elif CPU not in requests:
        requests[CPU] = f"{-(-1000 * spec.domain.cpus // _CPU_SHARE)}m"

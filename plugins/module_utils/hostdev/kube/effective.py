"""A spec with the amounts that it leaves unsaid, as KubeVirt's mutating webhook writes them before it makes a pod (pkg/defaults)."""

from __future__ import annotations

from dataclasses import replace

from ..vmi.amounts import CPU, MEMORY, Amounts
from ..vmi.quantity import Quantity
from ..vmi.spec import Spec


def effective(spec: Spec) -> Spec:
    """Return the spec with its memory and CPU requests and its topology: limits stand in for requests, then what the guest sees."""
    domain = spec.domain
    sockets, cores, threads = domain.topology
    asked, limited = domain.resources.requests, domain.resources.limits
    memory: Quantity | None = asked.memory or limited.memory or domain.memory.guest
    cpu = asked.cpu or limited.cpu
    added = {name: amount for name, amount in ((MEMORY, memory), (CPU, cpu)) if amount is not None}
    resources = replace(domain.resources, requests=Amounts({**asked.values, **added}))
    topology = replace(domain.cpu, sockets=sockets, cores=cores, threads=threads)
    return replace(spec, domain=replace(domain, resources=resources, cpu=topology))

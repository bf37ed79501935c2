"""spec of a VirtualMachineInstance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .claims import ResourceClaim
from .devices import HostDevice
from .domain import Domain
from .networks import Interface, Network
from .schema import OPAQUE, TEXT, TEXTS, at_least, many, nested, one_of, row
from .volumes import Volume

GRACE = 30
"""Seconds between the wish to stop and the end, where the manifest does not say (KubeVirt's default)."""


@dataclass(frozen=True)
class Spec:
    """What the guest is, and where its pod may run; tolerations, affinity and spread go to the pod as they stand."""

    unserved: ClassVar[Mapping[str, str]] = {
        "accessCredentials": "access credentials are not served by this version",
        "evictionStrategy": "live migration is not served: a guest with host devices cannot move",
    }

    domain: Domain = row("domain", nested(Domain), required=True)
    volumes: tuple[Volume, ...] = row("volumes", many(nested(Volume)), ())
    networks: tuple[Network, ...] = row("networks", many(nested(Network)), ())
    resource_claims: tuple[ResourceClaim, ...] = row("resourceClaims", many(nested(ResourceClaim)), ())
    node_selector: Mapping[str, str] = row("nodeSelector", TEXTS, make=dict)
    tolerations: tuple[Mapping[str, Any], ...] = row("tolerations", many(OPAQUE), ())
    affinity: Mapping[str, Any] = row("affinity", OPAQUE, make=dict)
    spread: tuple[Mapping[str, Any], ...] = row("topologySpreadConstraints", many(OPAQUE), ())
    grace_seconds: int = row("terminationGracePeriodSeconds", at_least(0), GRACE)
    priority_class: str = row("priorityClassName", TEXT, "")
    scheduler: str = row("schedulerName", TEXT, "")
    architecture: str = row("architecture", one_of("amd64", "arm64"), "")
    liveness_probe: Mapping[str, Any] = row("livenessProbe", OPAQUE, make=dict)
    readiness_probe: Mapping[str, Any] = row("readinessProbe", OPAQUE, make=dict)

    @property
    def host_devices(self) -> tuple[tuple[str, HostDevice], ...]:
        """Return every device that comes from the host with its path: hostDevices first, then gpus, each in the order written."""
        devices = self.domain.devices
        lists: tuple[tuple[str, tuple[HostDevice, ...]], ...] = (("hostDevices", devices.host_devices), ("gpus", devices.gpus))
        return tuple((f"spec.domain.devices.{key}[{index}]", one) for key, items in lists for index, one in enumerate(items))

    @property
    def resources(self) -> dict[str, int]:
        """Return how many devices of each extended resource the guest needs, in the order of host_devices; claims are none of them."""
        counts: dict[str, int] = {}
        for dummy, device in self.host_devices:
            if device.device_name and not device.claimed:
                counts[device.device_name] = counts.get(device.device_name, 0) + 1
        return counts

    @property
    def sriov(self) -> tuple[tuple[int, Interface], ...]:
        """Return the interfaces that are virtual functions, each with its place in the list."""
        return tuple((index, one) for index, one in enumerate(self.domain.devices.interfaces) if one.sriov is not None)

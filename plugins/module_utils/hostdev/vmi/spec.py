"""spec of a VirtualMachineInstance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .devices import HostDevice
from .domain import Domain
from .schema import OPAQUE, TEXT, TEXTS, at_least, many, nested, one_of, row
from .volumes import Volume

GRACE = 30
"""Seconds between the wish to stop and the end, where the manifest does not say (KubeVirt's default)."""


@dataclass(frozen=True)
class Spec:
    """What the guest is, and where its pod may run; tolerations and affinity go to the pod as they stand."""

    unserved: ClassVar[Mapping[str, str]] = {
        "networks": "guest networks are not served by this version",
        "accessCredentials": "access credentials are not served by this version",
        "evictionStrategy": "live migration is not served: a guest with host devices cannot move",
        "livenessProbe": "probes of the guest are not served by this version",
        "readinessProbe": "probes of the guest are not served by this version",
    }

    domain: Domain = row("domain", nested(Domain), required=True)
    volumes: tuple[Volume, ...] = row("volumes", many(nested(Volume)), ())
    resource_claims: tuple[Mapping[str, Any], ...] = row("resourceClaims", many(OPAQUE), ())
    node_selector: Mapping[str, str] = row("nodeSelector", TEXTS, make=dict)
    tolerations: tuple[Mapping[str, Any], ...] = row("tolerations", many(OPAQUE), ())
    affinity: Mapping[str, Any] = row("affinity", OPAQUE, make=dict)
    grace_seconds: int = row("terminationGracePeriodSeconds", at_least(0), GRACE)
    priority_class: str = row("priorityClassName", TEXT, "")
    scheduler: str = row("schedulerName", TEXT, "")
    architecture: str = row("architecture", one_of("amd64"), "")

    @property
    def host_devices(self) -> tuple[tuple[str, HostDevice], ...]:
        """Return every device that comes from the host with its path: hostDevices first, then gpus, each in the order written."""
        devices = self.domain.devices
        lists: tuple[tuple[str, tuple[HostDevice, ...]], ...] = (("hostDevices", devices.host_devices), ("gpus", devices.gpus))
        return tuple((f"spec.domain.devices.{key}[{index}]", one) for key, items in lists for index, one in enumerate(items))

    @property
    def resources(self) -> dict[str, int]:
        """Return how many devices of each extended resource the guest needs, in the order of host_devices."""
        counts: dict[str, int] = {}
        for dummy, device in self.host_devices:
            if device.device_name:
                counts[device.device_name] = counts.get(device.device_name, 0) + 1
        return counts

"""kubevirt.io/v1 VirtualMachineInstance: one run of a guest, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from .meta import Metadata
from .schema import nested, row, write_object
from .spec import Spec

API_VERSION = "kubevirt.io/v1"
# KubeVirt's name space of firmware UUIDs: a guest that comes from there keeps its machine id
_FIRMWARE = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")


@dataclass(frozen=True)
class VirtualMachineInstance:
    """One run of a guest."""

    metadata: Metadata = row("metadata", nested(Metadata), required=True)
    spec: Spec = row("spec", nested(Spec), required=True)

    @property
    def name(self) -> str:
        """Return metadata.name."""
        return self.metadata.name

    @property
    def uuid(self) -> str:
        """Return the machine's UUID: firmware.uuid, else one that depends on the name alone, so that it survives a restart."""
        return self.spec.domain.firmware.uuid or str(uuid5(_FIRMWARE, self.name))

    def instance(self) -> VirtualMachineInstance:
        """Return itself: what a VirtualMachine's instance() is for its run."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the document; parse_manifest of it gives an equal value."""
        return {"apiVersion": API_VERSION, "kind": "VirtualMachineInstance", **write_object(self)}

"""Who holds what: one device of a device plugin in one container, as all who ask for holders know it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Holding:
    """One device id that a container of a pod has been given.

    values: what its variables name for the container's devices of that resource (addresses, uuids, bus:device). nodes: the
    device nodes that it was handed with them, paths of the host. Both are empty where the kubelet's store cannot be read.
    """

    resource: str
    id: str
    namespace: str
    pod: str
    container: str
    values: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """Return the pod as people name it, "namespace/name"."""
        return f"{self.namespace}/{self.pod}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON: the fields by their names."""
        return {**asdict(self), "values": list(self.values), "nodes": list(self.nodes)}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Holding:
        """Return what as_dict gave; what is missing is empty."""
        texts = {name: str(raw.get(name) or "") for name in ("resource", "id", "namespace", "pod", "container")}
        return Holding(**texts, values=tuple(raw.get("values") or ()), nodes=tuple(raw.get("nodes") or ()))


@dataclass(frozen=True)
class Asked:
    """What came of asking for holders. fault: why nobody could be asked; then nothing is known, not even that nobody holds anything."""

    holdings: tuple[Holding, ...] = ()
    fault: str = ""

"""A KubeVirt object in memory, for tests of what is written into it: versions, merge patches, and others who write too."""

from __future__ import annotations

import copy
from typing import Any, Callable

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy


def kubevirt(configuration: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a KubeVirt object; without a configuration its spec is empty."""
    meta = {"namespace": "kubevirt", "name": "kubevirt", "resourceVersion": "1", **metadata}
    spec = {} if configuration is None else {"configuration": copy.deepcopy(configuration)}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": meta, "spec": spec}


def merged(target: Any, patch: Any) -> Any:
    """Return a value after a merge patch, by the algorithm of RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class FakeKubeVirt:
    """Holds one object. meanwhile: what others do to it, one change before each patch. unknown: lists that its schema drops."""

    def __init__(self, cr: dict[str, Any] | None, unknown: tuple[str, ...] = ()) -> None:
        self.cr, self.unknown = cr, unknown
        self.meanwhile: list[Callable[[dict[str, Any]], None]] = []
        self.vm_list: list[dict[str, Any]] = []
        self.patches: list[tuple[bool, dict[str, Any]]] = []

    def read(self) -> dict[str, Any]:
        """Return the object."""
        if self.cr is None:
            raise Absent(what="read KubeVirt's configuration", subject="kubevirt/kubevirt", cause="there is no such KubeVirt object")
        return copy.deepcopy(self.cr)

    def change(self, work: Callable[[dict[str, Any]], None]) -> None:
        """Let somebody else change the object."""
        if self.cr is not None:
            work(self.cr)
            self._count()

    def patch(self, patch: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        """Apply a merge patch, or answer what it would make; Busy for another version than the present."""
        if self.meanwhile:
            self.change(self.meanwhile.pop(0))
        self.patches.append((dry_run, patch))
        before = self.read()
        if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise Busy(what="write kubevirts.kubevirt.io", subject="kubevirt", cause="the object has been modified")
        made: dict[str, Any] = merged(before, patch)
        for name in self.unknown:
            made["spec"].get("configuration", {}).get("permittedHostDevices", {}).pop(name, None)
        if not dry_run:
            self.cr = made
            self._count()
        return copy.deepcopy(made)

    def vms(self) -> list[dict[str, Any]]:
        """Return all VMs and VMIs."""
        return self.vm_list

    def _count(self) -> None:
        if self.cr is not None:
            self.cr["metadata"]["resourceVersion"] = str(int(self.cr["metadata"]["resourceVersion"]) + 1)

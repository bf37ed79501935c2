"""The kubelet's store of Allocate's answers, which a container is given again at every later start, also after a reboot.

A source for diagnosis only: who holds a device is the ledger's to say. Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint,
{"Data": {"PodDeviceEntries": [{"PodUID", "ContainerName", "ResourceName", "DeviceIDs": {NUMA: [ID]}, "AllocResp"}]}} with
AllocResp a ContainerAllocateResponse in base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..device.faults import Refused
from ..device.names import PREFIXES, addresses_of, variable
from ..device.offer import Offer
from .wire import device_plugin

try:
    from google.protobuf.message import DecodeError
except ImportError:
    DecodeError = ValueError  # type: ignore[assignment,misc]

FILE = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Stored:
    """One stored answer. pod: its uid. ids: without order, which the kubelet does not keep. mounts, nodes: paths of the host."""

    pod: str
    container: str
    resource: str
    ids: frozenset[str]
    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """Return what its variables name: addresses, uuids, bus:device; nothing where a variable is not of our form."""
        names = {variable(prefix, self.resource) for prefix in PREFIXES.values()}
        try:
            return tuple(value for name, text in self.envs if name in names for value in addresses_of(text))
        except Refused:
            return ()


def read_stored(plugin_folder: Path) -> Optional[tuple[Stored, ...]]:
    """Return the stored answers; None when there is no readable store.

    Broken entries are passed over: the kubelet has no use for them either. Unsupported without python3-protobuf.
    """
    try:
        entries = json.loads((plugin_folder / FILE).read_text(encoding="utf-8"))["Data"]["PodDeviceEntries"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    # null is how the kubelet writes an empty list
    return tuple(stored for entry in entries or () for stored in _read(entry)) if isinstance(entries, (list, type(None))) else None


def _read(entry: Any) -> Iterator[Stored]:
    try:
        answer = device_plugin()["ContainerAllocateResponse"].FromString(base64.b64decode(entry["AllocResp"] or "", validate=True))
        yield Stored(
            pod=str(entry.get("PodUID") or ""),
            container=str(entry.get("ContainerName") or ""),
            resource=str(entry["ResourceName"]),
            ids=frozenset(_ids(entry.get("DeviceIDs"))),
            envs=tuple(sorted(answer.envs.items())),
            mounts=tuple(one.host_path for one in answer.mounts),
            nodes=tuple(one.host_path for one in answer.devices),
        )
    except (LookupError, TypeError, ValueError, AttributeError, DecodeError):
        return


def _ids(told: Any) -> Iterator[str]:
    # by NUMA node; before Kubernetes 1.20 a plain list. An answer counts whatever its ids look like
    for ids in told.values() if isinstance(told, Mapping) else [told]:
        yield from map(str, ids if isinstance(ids, list) else ())


@dataclass(frozen=True)
class Renumbered:
    """A stored answer that means other devices than its ids do now, and how. pod: its uid."""

    resource: str
    pod: str
    container: str
    ids: tuple[str, ...]
    values: tuple[str, ...]
    now: tuple[str, ...]

    @property
    def detail(self) -> str:
        """Return what differs: "unit 16 was 0000:01:00.0 when the pod got it; 0000:01:00.0 is unit 17 now"."""
        return f"unit {','.join(self.ids)} was {','.join(self.values)} when the pod got it; {'; '.join(self.now)}"

    @property
    def hint(self) -> str:
        """Return the mend."""
        return "delete the pod: the kubelet gives this answer again at every start of its container, and to its successor a new one"

    def text(self) -> str:
        """Return the line for the log."""
        return f"{self.resource}: renumbered: {self.detail} (pod {self.pod}, container {self.container}) -> {self.hint}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for the state file."""
        return {
            "resource": self.resource,
            "pod_uid": self.pod,
            "container": self.container,
            "ids": list(self.ids),
            "values": list(self.values),
            "detail": self.detail,
            "hint": self.hint,
        }


def renumbered(stored: Iterable[Stored], offers: Iterable[Offer]) -> tuple[Renumbered, ...]:
    """Return the stored answers of our resources whose variables do not name what their ids mean now.

    Group numbers may change at a boot, and with them the ids, while the kubelet keeps its answers; a USB device has another
    number after each plugging. What is not there now is missing, not renumbered.
    """
    # a device that is there means more than one that had this number before
    units = sorted((offer for offer in offers if offer.values), key=lambda offer: bool(offer.present))
    resources = {offer.resource for offer in units}
    by_value = {value: offer for offer in units for value in offer.values}
    by_id = {offer.id: offer for offer in units}
    found = []
    for one in stored:
        if one.resource in resources and one.values:
            named = [(value, by_value[value].id) for value in one.values if value in by_value]
            meant = [(number, by_id[number].values) for number in sorted(one.ids) if number in by_id]
            now = [f"{value} is unit {number} now" for value, number in named if number not in one.ids]
            now += [f"unit {number} is {','.join(values)} now" for number, values in meant if not set(values) <= set(one.values)]
            found.append(Renumbered(one.resource, one.pod, one.container, tuple(sorted(one.ids)), one.values, tuple(now)))
    return tuple(one for one in found if one.now)

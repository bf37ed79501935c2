"""The ledger of one node: which devices the kubelet may give, and which container of which pod holds which.

Holders are the kubelet's own word (podresources), never concluded from anything else: a pod that is gone is not in it, and a
kubelet that cannot be asked is a fault, since "nobody holds it" would be a guess. It tells all device plugins' devices, ours
and others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..device.holding import Holding
from ..root import Root
from .checkpoint import Stored, read_stored
from .podresources import KUBELET_ROOT, ask

PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


@dataclass(frozen=True)
class Ledger:
    """allocatable: ids by resource, only of devices that the kubelet counts as healthy. holdings: in the kubelet's order."""

    allocatable: Mapping[str, frozenset[str]] = field(default_factory=dict)
    holdings: tuple[Holding, ...] = ()

    def holders(self, resource: str, number: Optional[str] = None) -> tuple[Holding, ...]:
        """Return who holds a device, or any device of a resource; two containers of one pod may hold the same."""
        return tuple(one for one in self.holdings if one.resource == resource and number in (None, one.id))


def read_ledger(root: Root, kubelet_root: str = KUBELET_ROOT, plugin_folder: str = PLUGIN_FOLDER) -> Ledger:
    """Return the ledger; the faults of podresources.ask when the kubelet cannot be asked.

    plugin_folder: where the kubelet keeps the answers of Allocate, which tell values and nodes; that they are not there, or
    cannot be read, leaves those empty.
    """
    allocatable, listed = ask(root, kubelet_root)
    return Ledger(_ids(allocatable.devices), tuple(with_answers(_holdings(listed), read_stored(root.at(plugin_folder)) or ())))


def _ids(devices: Any) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for one in devices:
        # one resource stands in several entries, one per NUMA node
        found.setdefault(one.resource_name, set()).update(one.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}


def _holdings(listed: Any) -> list[Holding]:
    return [
        Holding(one.resource_name, device_id, pod.namespace, pod.name, container.name)
        for pod in listed.pod_resources
        for container in pod.containers
        for one in container.devices
        for device_id in one.device_ids
    ]


def with_answers(holdings: Iterable[Holding], stored: Iterable[Stored]) -> list[Holding]:
    """Return the holdings with what their containers were given.

    The kubelet lists pods by name and stores answers by uid. A device has one holder at a time, so resource, id and container
    tell them together, but for answers of dead pods that the kubelet has not dropped yet: then the nodes of both count.
    """
    answers: dict[tuple[str, str, str], list[Stored]] = {}
    for one in stored:
        for number in one.ids:
            answers.setdefault((one.resource, number, one.container), []).append(one)
    made = []
    for holding in holdings:
        mine = answers.get((holding.resource, holding.id, holding.container), [])
        values = tuple(dict.fromkeys(value for one in mine for value in one.values))
        nodes = tuple(dict.fromkeys(node for one in mine for node in one.nodes))
        made.append(replace(holding, values=values, nodes=nodes))
    return made

"""Which types of mediated devices a node wants: KubeVirt's block mediatedDevicesConfiguration as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from .mdev import type_key
from .selector import refuse, text_of

NAME = "mediatedDevicesConfiguration"
_TYPES, _FORMER = "mediatedDeviceTypes", "mediatedDevicesTypes"
_NODES, _SELECTOR, _ENABLED = "nodeMediatedDeviceTypes", "nodeSelector", "enabled"


@dataclass(frozen=True)
class NodeTypes:
    """Types for the nodes whose labels have all these pairs; no pair means every node."""

    labels: Mapping[str, str]
    types: tuple[str, ...] = ()

    def means(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels is meant."""
        return all(labels.get(name) == value for name, value in self.labels.items())


@dataclass(frozen=True)
class MdevConfiguration:
    """KubeVirt's block (types.go, MediatedDevicesConfiguration).

    types: for nodes that no entry of `nodes` has a type for. enabled: whether devices are made and removed, None where
    the block does not say.
    """

    types: tuple[str, ...] = ()
    nodes: tuple[NodeTypes, ...] = ()
    enabled: Optional[bool] = None

    def wanted(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the types, by name or id, that a node with these labels wants, each once in the order of the block.

        They are the union over all entries that mean the node; where that is empty, the types for all others
        (virt-config.go, GetDesiredMDEVTypes). Two spellings of one type are one: the first.
        """
        meant = [one for entry in self.nodes if entry.means(labels) for one in entry.types]
        found: dict[str, str] = {}
        for one in meant or self.types:
            found.setdefault(type_key(one), one)
        return tuple(found.values())

    def is_disabled(self, *, gate: bool) -> bool:
        """Return whether nothing is to be made or removed; gate: KubeVirt's deprecated DisableMDEVConfiguration.

        The block alone decides where it says anything.
        """
        return gate if self.enabled is None else not self.enabled


def parse_mdev_configuration(block: Optional[Mapping[str, Any]], position: str = NAME) -> MdevConfiguration:
    """Return the value of the block, that of an empty one for None; Refused with the position of what is wrong."""
    given = _map(block or {}, position, (_TYPES, _FORMER, _NODES, _ENABLED))
    enabled = given.get(_ENABLED)
    if enabled is not None and not isinstance(enabled, bool):
        raise refuse(f"{position}.{_ENABLED}", enabled, "true or false is needed here")
    nodes = [_node(one, f"{position}.{_NODES}[{i}]") for i, one in enumerate(_list(given.get(_NODES), f"{position}.{_NODES}"))]
    return MdevConfiguration(_types(given, position), tuple(nodes), enabled)


def _node(value: object, position: str) -> NodeTypes:
    given = _map(value, position, (_SELECTOR, _TYPES, _FORMER))
    if not isinstance(given.get(_SELECTOR), Mapping):
        raise refuse(f"{position}.{_SELECTOR}", given.get(_SELECTOR), "a map of labels is needed", "{} means every node")
    labels = given[_SELECTOR]
    for name, one in labels.items():
        if not isinstance(name, str) or not isinstance(one, str):
            raise refuse(f"{position}.{_SELECTOR}.{name}", one, "a label's name and value are text", "put it in quotes")
    return NodeTypes(dict(labels), _types(given, position))


def _types(given: Mapping[str, Any], position: str) -> tuple[str, ...]:
    """Return the list of types; the deprecated spelling counts only where the other one has none, as in KubeVirt."""
    lists = {name: _list(given.get(name), f"{position}.{name}") for name in (_TYPES, _FORMER)}
    read = {name: [text_of(one, f"{position}.{name}[{i}]") for i, one in enumerate(found)] for name, found in lists.items()}
    return tuple(read[_TYPES] or read[_FORMER])


def _map(value: object, position: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(position, value, f"a map is needed here, not {type(value).__name__}")
    for key in value:
        if key not in known:
            raise refuse(f"{position}.{key}", value[key], f"unknown key; known are {', '.join(known)}")
    return value


def _list(value: object, position: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise refuse(position, value, f"a list is needed here, not {type(value).__name__}")
    return list(value)

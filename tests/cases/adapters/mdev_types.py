"""Adapter of mdev-types.json: which types a node wants, and whether they are handled; nothing is created or removed yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.mdev import type_key
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.mdevtypes import parse_mdev_configuration
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("desired_for_node", "desired_for_node_config", "handling_disabled")
_SWITCHES = ({"enabled", "gate", "disabled"}, {"config", "gate", "disabled"})


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per node and per pair of switches; a node has the file's configuration unless it has its own."""
    common = document.get("desired_for_node_config")
    for row in document.get("desired_for_node", ()):
        want = row.get("want", row.get("expected"))
        known = set(row) <= {"node_labels", "config", "expected", "want", "how"} and isinstance(want, list)
        check = partial(_check_wanted, row.get("config", common), row.get("node_labels"), want)
        yield Case(f"desired_for_node {row.get('node_labels')}", check if known else None)
    for row in document.get("handling_disabled", ()):
        given = {name: value for name, value in row.items() if name not in ("how", "want", "name")}
        want = row.get("want", {}).get("disabled", row.get("disabled"))
        yield Case(f"handling_disabled {given}", partial(_check_disabled, row, want) if set(given) in _SWITCHES else None)


def _check_wanted(config: Any, labels: dict[str, str], want: list[str]) -> None:
    same(sorted(map(type_key, parse_mdev_configuration(config).wanted(labels))), sorted(map(type_key, want)))


def _check_disabled(row: Mapping[str, Any], want: bool) -> None:
    block = row["config"] if "config" in row else {"enabled": row["enabled"]}
    same(parse_mdev_configuration(block).is_disabled(gate=row["gate"]), want)

"""Objects of the API server as plain maps: looked at by a path, changed on a copy, and the merge patch between two of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Optional

Way = tuple[str, ...]
Object = dict[str, Any]


class SpecEditor:
    """A copy of an object whose lists below spec are replaced; made: dotted paths of maps and lists that are ours."""

    def __init__(self, cr: Object, made: frozenset[str]) -> None:
        self.cr, self.made = copy.deepcopy(cr), set(made)

    def put(self, path: Way, values: list[Any]) -> None:
        """Put a list in place, with the maps that hold it; one that this empties goes if we had made it, and so on upwards."""
        before = at(self.cr, path)
        if values == (before or []):
            return
        if values:
            self._holder(path)[path[-1]] = values
            return
        self._holder(path)[path[-1]] = []
        for length in range(len(path), 0, -1):
            name = ".".join(path[:length])
            if name not in self.made or at(self.cr, path[:length]):
                break
            self.made.discard(name)
            del self._holder(path[:length])[path[length - 1]]

    def _holder(self, path: Way) -> Object:
        """Return the map that holds the last part of a path; what was not there is marked as made by us."""
        there: Object = self.cr.setdefault("spec", {})
        for length, part in enumerate(path, 1):
            if there.get(part) is None:
                self.made.add(".".join(path[:length]))
                there[part] = {}
            if length < len(path):
                there = there[part]
        return there


def at(cr: Object, path: Way) -> Any:
    """Return what stands at a path below an object's spec, None for nothing."""
    return get(cr.get("spec") or {}, path)


def get(value: Any, path: Way) -> Any:
    """Return what stands at a path below a map, None for nothing."""
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """Return the merge patch (RFC 7386) from one map to another."""
    changes: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old: Optional[Any] = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, value)
            if inner:
                changes[key] = inner
        elif key not in before or value != old:
            changes[key] = value
    return changes

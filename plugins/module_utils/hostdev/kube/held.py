"""Which grant folders containers hold, from the kubelet's store of Allocate's answers.

The kubelet uses a stored answer again for every later start of a container, also after a restart of the machine, when
/run is empty and the device may be gone. podresources (KEP-606) tells devices but no mounts, and only while the kubelet runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Optional

from .checkpoint import read_stored
from .grant import Place


def held_places(plugin_folder: Path, grants: str) -> Optional[list[Place]]:
    """Return a place, not served, for every folder below grants that a stored answer mounts; None when there is no readable store."""
    stored = read_stored(plugin_folder)
    if stored is None:
        return None
    return [
        Place(one.resource, PurePosixPath(path).name, path, (), (), served=False) for one in stored for path in _ours(one.mounts, grants)
    ]


def _ours(paths: Iterable[str], grants: str) -> Iterator[str]:
    for path in paths:
        plain = PurePosixPath(path)
        if str(plain) == path and str(plain.parent.parent) == grants and ".." not in plain.parts:
            yield path

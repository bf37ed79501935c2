"""Generic device nodes as offers: as many as declared, all of one node."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from ..device.declaration import IOMMUFD, NODE, Declaration
from ..device.grant import safe_id
from ..device.nodes import Node
from ..device.offer import NO_DEVICE_NODE, Found, Offer
from ..root import Root


def find(root: Root, declaration: Declaration, _former: Sequence[Offer] = ()) -> Found:
    """Return the offers of every declared node; all units of one node are healthy or none is."""
    nodes = [(entry, entry.node) for entry in declaration.of(NODE, IOMMUFD).served if entry.node is not None]
    return Found(_all(tuple((entry.kind, entry.resource, node, _trouble(root, node)) for entry, node in nodes)))


def gone(_root: Root, offer: Offer) -> str:
    """Return why a unit is none any more."""
    return f"{offer.name} is offered fewer times than before"


def _trouble(root: Root, node: Node) -> str:
    try:
        state = root.at(node.path).stat()
    except OSError as error:
        return f"{node.path} cannot be used: {error.strerror}"
    return "" if stat.S_ISCHR(state.st_mode) else f"{node.path} is no character device"


# a node may be offered a thousand times: a look that finds nothing new gives the very values of the look before, which are
# compared without looking into them
@lru_cache(maxsize=8)
def _all(nodes: tuple[tuple[str, str, Node, str], ...]) -> tuple[Offer, ...]:
    return tuple(chain.from_iterable(_offers(*one) for one in nodes))


@lru_cache(maxsize=64)
def _offers(kind: str, resource: str, node: Node, trouble: str) -> tuple[Offer, ...]:
    short = resource.rpartition("/")[2]
    required = (node.path,)
    present = () if trouble else required
    return tuple(
        Offer(
            kind,
            resource,
            safe_id(f"{short}{number}"),
            node.path,
            required=required,
            present=present,
            permissions=node.permissions,
            trouble=trouble,
            trouble_code=NO_DEVICE_NODE if trouble else "",
        )
        for number in range(node.count)
    )

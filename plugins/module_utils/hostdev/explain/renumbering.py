"""Units that a pod holds by an answer from before their numbers changed: what to say of them, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..kube.ledger import Ledger


def renumbering(
    state: Optional[Mapping[str, Any]], ledger: Optional[Ledger], resource: str, number: str, values: Sequence[str]
) -> tuple[str, ...]:
    """Return what a stored answer of the kubelet confuses about a unit, and the mend; nothing when none does.

    state: with what kube/past.py found. values: the unit's addresses. An answer that no pod holds any more confuses nobody,
    so the ledger has to name a holder of one of its ids; without a ledger the answer counts.
    """
    for one in state["renumbered"] if state else ():
        if one["resource"] == resource and (number in one["ids"] or set(values) & set(one["values"])):
            holders = [holding for given in one["ids"] for holding in (ledger.holders(resource, given) if ledger else ())]
            if ledger is None or holders:
                owner = f"pod {holders[0].owner}" if holders else f"the pod {one['pod_uid']}"
                return f"renumbered: {one['detail']}", f"delete {owner}: {one['hint'].partition(': ')[2]}"
    return ()

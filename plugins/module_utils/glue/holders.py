# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who holds devices on a node, asked of the node's own program: what speaks to the kubelet does not travel with modules."""

from __future__ import annotations

import json
from typing import Any

from ..hostdev.device.faults import Fault
from ..hostdev.device.holding import Asked, Holding
from ..hostdev.explain.state import LISTS, read_state
from ..hostdev.root import Root
from .release import PREFIX

PROGRAM = f"{PREFIX}/current/bin/hostdev"
KUBELET_ROOT = "/var/lib/kubelet"
_SECONDS = 60.0


def ask_holders(root: Root, kubelet_root: str = KUBELET_ROOT) -> Asked:
    """Return the holdings that `hostdev holders` lists, or why it cannot: no runtime on the node, no kubelet that answers."""
    try:
        done = root.run([PROGRAM, "holders", "--format", "json", "--kubelet-root", kubelet_root], _SECONDS)
    except Fault as fault:
        return Asked(fault=f"{fault.subject}: {fault.cause}")
    if done.code != 0:
        said = (done.err or done.out).strip().splitlines()
        return Asked(fault=said[-1].removeprefix("hostdev: ") if said else f"{PROGRAM}: exit code {done.code}")
    try:
        return Asked(tuple(Holding.of(one) for one in json.loads(done.out)["holders"]))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Asked(fault=f"{PROGRAM}: its answer is none: {error!r}")


def plugin_told(root: Root, kubelet_root: str = KUBELET_ROOT) -> dict[str, Any]:
    """Return what the device plugin's state file tells, each unit with its holders: {"running", "holders_fault", "resources", ...}.

    A unit's holders are a list of {"namespace", "pod", "container"}, None where nobody could be asked.
    """
    state = read_state(root)
    asked = ask_holders(root, kubelet_root) if state else Asked()
    told = {name: list(state[name]) if state else [] for name in LISTS}
    told["units"] = [{**unit, "holders": _holders(unit, asked)} for unit in told["units"]]
    return {"running": state is not None, "holders_fault": asked.fault, **told}


def _holders(unit: dict[str, Any], asked: Asked) -> Any:
    if asked.fault:
        return None
    # the units of a node are one
    mine = [one for one in asked.holdings if one.resource == unit["resource"] and (unit["count"] > 1 or one.id == unit["id"])]
    return [{"namespace": one.namespace, "pod": one.pod, "container": one.container} for one in mine]

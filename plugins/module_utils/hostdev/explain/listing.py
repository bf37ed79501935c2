"""The declared devices of one node as `hostdev devices` lists them: a row for each, with state, holder, reason and mend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ..device.declaration import Declaration, Entry
from ..device.inventory import skipped_dict
from ..device.offer import Offer
from ..kube.checkpoint import read_stored, renumbered
from ..kube.kinds import find, find_skipped
from ..kube.ledger import Ledger
from ..kube.state import units_of
from ..root import Root
from .chain import columns
from .facts import Where, ask_ledger
from .mends import mend
from .nearest import Unmatched, read_unmatched
from .renumbering import renumbering
from .state import SERVICE, read_state

VERSION = 1
NO_SUCH_DEVICE, EXTERNAL, NOT_REGISTERED = "no-such-device", "external", "not-registered"
SERVICE_SAYS, MACHINE_SHOWS = "service", "machine"
HEAD = ("DEVICE", "RESOURCE", "KIND", "UNIT", "NUMA", "STATE", "HOLDER", "WHY")


def read_listing(root: Root, declaration: Declaration, where: Where) -> dict[str, Any]:
    """Return everything for JSON: {"version", "source", "holders_fault", "devices": [...], "renumbered": [...]}.

    source: "service" where the device plugin's state file tells states and reasons, "machine" where no service runs and the
    machine itself was looked at. holders_fault: why the kubelet could not be asked, empty when it was.
    """
    state = read_state(root)
    told = state or _machine_state(root, declaration, where)
    ledger, fault = ask_ledger(root, where)
    kinds = {entry.resource: entry.kind for entry in declaration.entries}
    units = [unit for unit in told["units"] if unit["resource"] in kinds]
    devices = [_unit(unit, told, ledger) for unit in units]
    named = {(one["resource"], one["device"]) for one in devices}
    hints = {(one["resource"], one["address"]): one["hint"] for one in told["skipped"]}
    for one in devices:
        one["mend"] = hints.get((one["resource"], one["device"])) or one["mend"]
    skipped = [one for one in told["skipped"] if one["resource"] in kinds and (one["resource"], one["address"]) not in named]
    devices += [_skipped(one, kinds[one["resource"]]) for one in skipped]
    # what was offered and is gone tells more than that its entry means nothing now
    gone = {unit["resource"] for unit in units if unit["reason"]}
    devices += [_unmatched(one) for one in read_unmatched(root, declaration) if one.entry.resource not in gone]
    devices += [_external(entry, ledger) for entry in declaration.entries if entry.external]
    source = SERVICE_SAYS if state else MACHINE_SHOWS
    return {"version": VERSION, "source": source, "holders_fault": fault, "devices": devices, "renumbered": list(told["renumbered"])}


def _unregistered(unit: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, str]:
    """Return what to say of a unit that only the kubelet does not know; nothing of others, and where nobody says."""
    if unit["reason"]:
        return {}
    for one in told.get("resources", ()):
        if one.get("resource") == unit["resource"] and not one.get("registered", True):
            cause = f": {one['cause']}" if one.get("cause") else ""
            todo = f"is the kubelet up? look at its journal and that of {SERVICE}"
            return {"state": NOT_REGISTERED, "code": NOT_REGISTERED, "why": f"not registered with the kubelet{cause}", "mend": todo}
    return {}


def _machine_state(root: Root, declaration: Declaration, where: Where) -> dict[str, Any]:
    offers: Sequence[Offer] = find(root, declaration).offers
    stored = read_stored(root.at(where.plugin_folder)) or ()
    return {
        "units": units_of(offers, "", {}),
        "skipped": [skipped_dict(one) for one in find_skipped(root, declaration)],
        "renumbered": [one.as_dict() for one in renumbered(stored, offers)],
    }


def _row(device: str, resource: str, kind: str, state: str, why: str = "", **more: Any) -> dict[str, Any]:
    """Return a device with every key, so that machines need not ask which are there."""
    empty = {"id": "", "count": 0, "numa_node": None, "code": "", "since": "", "holders": [], "position": "", "mend": ""}
    return {"device": device, "resource": resource, "kind": kind, "state": state, "why": why, **empty, **more}


def _unit(unit: Mapping[str, Any], told: Mapping[str, Any], ledger: Optional[Ledger]) -> dict[str, Any]:
    why, todo = unit["reason"], mend(unit["code"], unit["kind"])
    if not why:
        why, todo = renumbering(told, ledger, unit["resource"], unit["id"], unit["values"]) or (_together(unit), "")
    holders = ledger.holders(unit["resource"], unit["id"] if unit["count"] == 1 else None) if ledger else None
    row = _row(
        unit["name"],
        unit["resource"],
        unit["kind"],
        unit["health"],
        why,
        id=unit["id"],
        count=unit["count"],
        numa_node=unit["numa_node"],
        code=unit["code"],
        since=unit["since"],
        holders=None if holders is None else [{"namespace": one.namespace, "pod": one.pod, "container": one.container} for one in holders],
        mend=todo,
    )
    return {**row, **_unregistered(unit, told)}


def _together(unit: Mapping[str, Any]) -> str:
    others = [one for one in unit["members"] if one != unit["name"]]
    return f"{len(others) + 1} devices share group {unit['id']}: one unit, with {' '.join(others)}" if others else ""


def _skipped(one: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return _row(one["address"], one["resource"], kind, one["reason"], one["detail"], code=one["reason"], mend=one["hint"])


def _unmatched(one: Unmatched) -> dict[str, Any]:
    entry = one.entry
    return _row("none", entry.resource, entry.kind, NO_SUCH_DEVICE, one.text, code=NO_SUCH_DEVICE, position=entry.position, mend=one.hint)


def _external(entry: Entry, ledger: Optional[Ledger]) -> dict[str, Any]:
    count = len(ledger.allocatable.get(entry.resource, ())) if ledger else 0
    now = "unknown" if ledger is None else f"yes, {count} allocatable" if count else "no"
    why = f"served by another device plugin; advertised now: {now}"
    return _row("none", entry.resource, entry.kind, EXTERNAL, why, code=EXTERNAL, count=count, position=entry.position)


def table(listing: Mapping[str, Any]) -> list[str]:
    """Return the listing as lines for people; below them what is not known, and why."""
    rows = [HEAD, *(_cells(one) for one in listing["devices"])]
    notes = []
    if listing["source"] == MACHINE_SHOWS:
        notes.append("the device plugin does not run here: this is what the machine itself shows")
    if listing["holders_fault"]:
        notes.append(f"holders are not known: cannot ask the kubelet: {listing['holders_fault']}")
    if not listing["devices"]:
        notes.append("nothing is declared for this node")
    return [*columns(rows), *([""] if notes else []), *notes]


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    unit = f"{one['id']} ({one['count']} in all)" if one["count"] > 1 and one["id"] else one["id"]
    numa = "" if one["numa_node"] is None else str(one["numa_node"])
    since = f" (since {one['since']})" if one["since"] and one["state"] == "Unhealthy" else ""
    todo = f" -> {one['mend']}" if one["mend"] else ""
    return (
        one["device"],
        one["resource"],
        one["kind"],
        unit or "-",
        numa or "-",
        one["state"],
        _holder(one["holders"]),
        f"{one['why']}{since}{todo}",
    )


def _holder(holders: Optional[Iterable[Mapping[str, str]]]) -> str:
    if holders is None:
        return "?"
    pods = list(dict.fromkeys(f"{one['namespace']}/{one['pod']}" for one in holders))
    return f"{pods[0]} and {len(pods) - 1} more" if len(pods) > 1 else pods[0] if pods else "-"

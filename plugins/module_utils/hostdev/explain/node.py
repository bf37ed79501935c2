"""The chains of all declared devices of one node: facts in, chains out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..device.declaration import PCI, Declaration, Entry
from ..device.inventory import NO_IOMMU_GROUP, SERVED_BY_KUBEVIRT, SHARES_GROUP, Skipped
from ..kernel.iommu import PENDING_REBOOT
from .chain import ABSENT, BROKEN, GUEST, KERNEL, KUBERNETES, OK, PENDING, Chain, Link, chain_of
from .facts import NodeFacts
from .nearest import Unmatched
from .renumbering import renumbering
from .seen import Seen
from .state import PLUGIN_STATE, SERVICE

_REBOOT = "reboot the node, or set hostdev_reboot_ok: true and run site.yml again"
_LOOK = f"systemctl status {SERVICE}; journalctl -u {SERVICE}"


def chains(declaration: Declaration, facts: NodeFacts, *, missing_ok: bool = False) -> list[Chain]:
    """Return one chain per unit, per skipped device, and per entry that means no device or is served by another plugin.

    missing_ok: an entry that means no device is no fault; unlike nodes share one declaration.
    """
    left = _left_to_kubevirt(facts)
    units = [one for one in facts.seen if one.resource not in left]
    made = [chain_of(one.resource, one.name, _unit_links(one, facts)) for one in units]
    named = {(one.resource, one.name) for one in facts.seen}
    made += [
        chain_of(one.resource, str(one.address), _skipped_links(one, declaration, facts))
        for one in facts.skipped
        if (one.resource, str(one.address)) not in named
    ]
    made += [chain_of(resource, one["address"], _kubevirt_links(one)) for resource, one in left.items()]
    gone = {one.resource for one in units if not one.evidence}
    for missing in facts.unmatched:
        if missing.entry.resource not in gone:
            links = [Link(KERNEL, ABSENT, missing.text)] if missing_ok else _following(_unmatched_link(missing))
            made.append(chain_of(missing.entry.resource, "none", links))
    made += [chain_of(entry.resource, "external", [_external_link(entry, facts)]) for entry in declaration.entries if entry.external]
    return made


def _following(first: Link) -> list[Link]:
    return [first, Link(KUBERNETES, BROKEN, ""), Link(GUEST, BROKEN, "")]


def _left_to_kubevirt(facts: NodeFacts) -> Mapping[str, Mapping[str, Any]]:
    skipped = facts.plugin["skipped"] if facts.plugin else ()
    return {one["resource"]: one for one in skipped if one["reason"] == SERVED_BY_KUBEVIRT}


def _kubevirt_links(one: Mapping[str, Any]) -> list[Link]:
    return [Link(KERNEL, OK, "left to KubeVirt"), Link(KUBERNETES, BROKEN, one["detail"], one["hint"]), Link(GUEST, BROKEN, "")]


def _external_link(entry: Entry, facts: NodeFacts) -> Link:
    """An entry of another plugin is no business of ours, but whether that plugin does it should be seen."""
    served = "served by another device plugin"
    if facts.ledger is None:
        return Link(KUBERNETES, ABSENT, f"{served}; the kubelet cannot be asked whether it is: {facts.ledger_fault}")
    count = len(facts.ledger.allocatable.get(entry.resource, ()))
    return Link(KUBERNETES, OK if count else ABSENT, f"{served}; advertised now: {f'yes, {count} allocatable' if count else 'no'}")


def _skipped_links(one: Skipped, declaration: Declaration, facts: NodeFacts) -> list[Link]:
    served = {name for unit in facts.seen if unit.evidence for name in unit.name.split("+")}
    others = any(unit.resource == one.resource and unit.evidence for unit in facts.seen)
    if one.reason == SHARES_GROUP and others and str(one.address) in served:
        # an entry that means more than an earlier one, and has the rest: as intended
        return [Link(KERNEL, ABSENT, one.detail)]
    return _following(_skipped_link(one, declaration, facts))


def _skipped_link(one: Skipped, declaration: Declaration, facts: NodeFacts) -> Link:
    kinds = {entry.kind for entry in declaration.served if entry.resource == one.resource}
    if PCI in kinds and (not facts.verdict.active or one.reason == NO_IOMMU_GROUP):
        evidence = f"{one.detail}; {facts.verdict.code}: {'; '.join(facts.verdict.evidence)}"
        if facts.verdict.code == PENDING_REBOOT:
            return Link(KERNEL, PENDING, evidence, _REBOOT)
        return Link(KERNEL, BROKEN, evidence, facts.verdict.advice)
    waits = facts.boot.awaited_by(str(one.address))
    if waits:
        return Link(KERNEL, PENDING, "; ".join([one.detail, *waits]), _REBOOT)
    return Link(KERNEL, BROKEN, one.detail, one.hint)


def _unmatched_link(one: Unmatched) -> Link:
    return Link(KERNEL, BROKEN, one.text, one.hint)


def _unit_links(one: Seen, facts: NodeFacts) -> list[Link]:
    return [_kernel_link(one, facts), _kubernetes_link(one, facts), _guest_link(one, facts)]


def _kernel_link(one: Seen, facts: NodeFacts) -> Link:
    if not one.trouble:
        return Link(KERNEL, OK, one.evidence)
    waits = [facts.boot.awaited_by(address) for address in one.blockers]
    if waits and all(waits):
        return Link(KERNEL, PENDING, "; ".join([one.trouble, *dict.fromkeys(text for texts in waits for text in texts)]), _REBOOT)
    since = next((f" since {unit['since']}" for unit in _served(one, facts) if unit.get("since") and unit["reason"]), "")
    return Link(KERNEL, BROKEN, f"{one.trouble}{since}", one.hint)


def _served(one: Seen, facts: NodeFacts) -> list[Mapping[str, Any]]:
    units = facts.plugin["units"] if facts.plugin else ()
    return [unit for unit in units if (unit["resource"], unit["id"]) == (one.resource, one.id)]


def _kubernetes_link(one: Seen, facts: NodeFacts) -> Link:
    fault = _plugin_fault(one, facts) or _kubelet_fault(one, facts)
    if fault:
        return Link(KUBERNETES, BROKEN, *fault)
    ids = facts.ledger.allocatable.get(one.resource, frozenset()) if facts.ledger else frozenset()
    units = f"unit {one.id} of {len(ids)} allocatable" if one.count == 1 else f"{len(ids)} of {one.count} allocatable"
    return Link(KUBERNETES, OK, f"{one.resource} {units}")


def _plugin_fault(one: Seen, facts: NodeFacts) -> tuple[str, ...]:
    """Return what the plugin does not do for a unit, with the mend; nothing when it does all."""
    if facts.plugin is None:
        return f"the device plugin does not run (nobody keeps {PLUGIN_STATE})", _LOOK
    served: Mapping[str, Any] = next((told for told in facts.plugin["resources"] if told.get("resource") == one.resource), {})
    if not served.get("registered"):
        cause = f": {served['cause']}" if served.get("cause") else ""
        return f"the plugin has not registered {one.resource} with the kubelet{cause}", f"is the kubelet up? {_LOOK}"
    mine = _served(one, facts)
    if not mine:
        return f"the plugin does not know unit {one.id} yet", f"it takes up what is bound within seconds: look again, then {_LOOK}"
    if mine[0]["health"] != "Healthy":
        return f"the plugin says: {mine[0]['reason']}", _LOOK
    return ()


def _kubelet_fault(one: Seen, facts: NodeFacts) -> tuple[str, ...]:
    if facts.ledger is None:
        return f"the kubelet cannot be asked: {facts.ledger_fault}", "is the kubelet up, and its podresources socket there?"
    ids = facts.ledger.allocatable.get(one.resource, frozenset())
    if (one.id not in ids) if one.count == 1 else not ids:
        return f"the kubelet does not list unit {one.id} of {one.resource} as allocatable (it lists {len(ids)})", _LOOK
    return renumbering(facts.plugin, facts.ledger, one.resource, one.id, one.values)


def _guest_link(one: Seen, facts: NodeFacts) -> Link:
    holders = facts.ledger.holders(one.resource, one.id if one.count == 1 else None) if facts.ledger else ()
    pods = list(dict.fromkeys(holding.owner for holding in holders))
    if pods and one.count == 1:
        return Link(GUEST, OK, f"held by pod {pods[0]}")
    if facts.image is False:
        return Link(
            GUEST, BROKEN, f"the launcher image {facts.image_name} is not on the node", "run site.yml with hostdev_launcher_archive"
        )
    free = f"held by {len(pods)} pods ({', '.join(pods[:3])}), free for others" if pods else "free for a guest"
    return Link(GUEST, OK, f"{free}; launcher image {facts.image_name} is on the node" if facts.image else free)

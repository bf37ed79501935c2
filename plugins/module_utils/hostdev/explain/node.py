"""The chains of all declared devices of one node: facts in, chains out; the reading of the facts stands at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..device.declaration import Declaration, Entry
from ..device.faults import Fault
from ..device.inventory import NO_IOMMU_GROUP, Inventory, Skipped, Unit
from ..kernel.claims import unmatched
from ..kernel.inventory import read_inventory
from ..kernel.iommu import PENDING_REBOOT, Verdict, read_iommu
from ..kernel.pending import NextBoot, read_next_boot
from ..kube.ledger import Ledger, read_ledger
from ..kube.podresources import KUBELET_ROOT
from ..root import Root, read_text
from .chain import ABSENT, BROKEN, GUEST, KERNEL, KUBERNETES, OK, PENDING, Chain, Link, chain_of

PLUGIN_STATE = "/run/vfio-passthrough/devices.json"
SERVICE = "vfio-passthrough-device-plugin.service"
_REBOOT = "reboot the node, or set hostdev_reboot_ok: true and run site.yml again"


@dataclass(frozen=True)
class NodeFacts:
    """What one node knows.

    plugin: the plugin's state file, None when it does not run. kubelet: what the kubelet says, None when it cannot be asked;
    kubelet_fault says why. image: whether the launcher image is there, None when nobody asked. unmatched: positions of entries
    that mean no device. boot: what waits for the next boot.
    """

    inventory: Inventory
    verdict: Verdict
    plugin: Optional[Mapping[str, Any]] = None
    kubelet: Optional[Ledger] = None
    kubelet_fault: str = ""
    image_name: str = ""
    image: Optional[bool] = None
    unmatched: frozenset[str] = frozenset()
    boot: NextBoot = field(default_factory=NextBoot)


def chains(declaration: Declaration, facts: NodeFacts, *, missing_ok: bool = False) -> list[Chain]:
    """Return one chain per unit, per skipped device, and per entry of the declaration that means no device at all.

    missing_ok: such an entry is no fault; unlike nodes share one declaration.
    """
    made = [chain_of(unit.resource, str(unit.primary.address), _unit_links(unit, facts)) for unit in facts.inventory.units]
    units = {unit.primary.address for unit in facts.inventory.units}
    for one in facts.inventory.skipped:
        if one.address not in units:
            made.append(chain_of(one.resource, str(one.address), _following(_skipped_link(one, facts))))
    for entry in declaration.served:
        if entry.position in facts.unmatched:
            links = [_absent_link(entry)] if missing_ok else _following(_unmatched_link(entry))
            made.append(chain_of(entry.resource, "none", links))
    return made


def _following(first: Link) -> list[Link]:
    return [first, Link(KUBERNETES, BROKEN, ""), Link(GUEST, BROKEN, "")]


def _skipped_link(one: Skipped, facts: NodeFacts) -> Link:
    if not facts.verdict.active or one.reason == NO_IOMMU_GROUP:
        evidence = f"{one.detail}; {facts.verdict.code}: {'; '.join(facts.verdict.evidence)}"
        if facts.verdict.code == PENDING_REBOOT:
            return Link(KERNEL, PENDING, evidence, _REBOOT)
        return Link(KERNEL, BROKEN, evidence, facts.verdict.advice)
    waits = facts.boot.awaited_by(str(one.address))
    if waits:
        return Link(KERNEL, PENDING, "; ".join([one.detail, *waits]), _REBOOT)
    return Link(KERNEL, BROKEN, one.detail, one.hint)


def _unmatched_link(entry: Entry) -> Link:
    return Link(KERNEL, BROKEN, _unmatched_words(entry), "compare the entry with `lspci -Dnn` on the node")


def _absent_link(entry: Entry) -> Link:
    return Link(KERNEL, ABSENT, _unmatched_words(entry))


def _unmatched_words(entry: Entry) -> str:
    asked = " or ".join(str(selector) for selector in entry.selectors)
    return f"{entry.position}: no PCI function of this node has {asked}"


def _unit_links(unit: Unit, facts: NodeFacts) -> list[Link]:
    return [_kernel_link(unit, facts), _kubernetes_link(unit, facts), _guest_link(unit, facts)]


def _kernel_link(unit: Unit, facts: NodeFacts) -> Link:
    if unit.blockers:
        held = f"IOMMU group {unit.group} is held by drivers of the host: {', '.join(one.label() for one in unit.blockers)}"
        waits = [facts.boot.awaited_by(str(one.address)) for one in unit.blockers]
        if all(waits):
            return Link(KERNEL, PENDING, "; ".join([held, *dict.fromkeys(text for texts in waits for text in texts)]), _REBOOT)
        return Link(KERNEL, BROKEN, held, "run site.yml: companions move with the device")
    moved = f", companions {' '.join(str(one.address) for one in unit.companions)}" if unit.companions else ""
    return Link(KERNEL, OK, f"driver {unit.primary.driver}, IOMMU group {unit.group}{moved}")


def _kubernetes_link(unit: Unit, facts: NodeFacts) -> Link:
    look = f"systemctl status {SERVICE}; journalctl -u {SERVICE}"
    if facts.plugin is None:
        return Link(KUBERNETES, BROKEN, f"the device plugin does not run ({PLUGIN_STATE} is missing)", look)
    served = {one["resource"]: one for one in facts.plugin.get("resources", [])}
    if not served.get(unit.resource, {}).get("registered"):
        return Link(KUBERNETES, BROKEN, f"the plugin has not registered {unit.resource} with the kubelet", f"is the kubelet up? {look}")
    mine = [one for one in facts.plugin.get("units", []) if one["resource"] == unit.resource and one["id"] == unit.group]
    if not mine or mine[0]["health"] != "Healthy":
        return Link(KUBERNETES, BROKEN, f"the plugin says: {mine[0]['reason'] if mine else 'unknown unit'}", look)
    if facts.kubelet is None:
        return Link(
            KUBERNETES,
            BROKEN,
            f"the kubelet cannot be asked: {facts.kubelet_fault}",
            "is the kubelet up, and its podresources socket there?",
        )
    ids = facts.kubelet.allocatable.get(unit.resource, frozenset())
    if unit.group not in ids:
        return Link(
            KUBERNETES, BROKEN, f"the kubelet does not list unit {unit.group} of {unit.resource} as allocatable (it lists {len(ids)})", look
        )
    return Link(KUBERNETES, OK, f"{unit.resource} unit {unit.group} of {len(ids)} allocatable")


def _guest_link(unit: Unit, facts: NodeFacts) -> Link:
    holders = facts.kubelet.holders(unit.resource, unit.group) if facts.kubelet else ()
    if holders:
        return Link(GUEST, OK, f"held by pod {holders[0].owner}")
    if facts.image is False:
        return Link(
            GUEST, BROKEN, f"the launcher image {facts.image_name} is not on the node", "run site.yml with hostdev_launcher_archive"
        )
    return Link(GUEST, OK, f"free for a guest; launcher image {facts.image_name} is on the node" if facts.image else "free for a guest")


def read_facts(
    root: Root, declaration: Declaration, image: str = "", ctr: Sequence[str] = (), kubelet_root: str = KUBELET_ROOT
) -> NodeFacts:
    """Return what this node knows now; a kubelet that cannot be asked is a fact, not an error."""
    inventory, boot = read_inventory(root, declaration), read_next_boot(root)
    kubelet, fault = None, ""
    try:
        kubelet = read_ledger(root, kubelet_root)
    except Fault as error:
        fault = error.cause
    return NodeFacts(
        inventory=inventory,
        verdict=read_iommu(root, [unit.primary for unit in inventory.units], boot.words),
        plugin=_plugin_state(root),
        kubelet=kubelet,
        kubelet_fault=fault,
        image_name=image,
        image=_has_image(root, image, ctr) if image else None,
        unmatched=frozenset(entry.position for entry in unmatched(root, declaration)),
        boot=boot,
    )


def _plugin_state(root: Root) -> Optional[Mapping[str, Any]]:
    text = read_text(root.at(PLUGIN_STATE))
    try:
        state = json.loads(text) if text else None
    except ValueError:
        return None
    return state if isinstance(state, dict) else None


def _has_image(root: Root, image: str, ctr: Sequence[str]) -> bool:
    done = root.run([*ctr, "images", "ls", "--quiet", f"name=={image}"])
    return done.code == 0 and image in done.out.split()

"""Our entries merged into a KubeVirt object, and taken out again: values in, values out.

What is ours is remembered exactly, in an annotation of the object. An entry that is not there any more as we wrote it is
somebody else's, and so is one that was there before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..device.faults import Refused
from .objects import Object, SpecEditor, at, get, merge_patch
from .permits import LISTS, Permit, Wanted

ANNOTATION = "vfio.passthrough/permitted"
GATE = "HostDevices"
PERMITTED = ("configuration", "permittedHostDevices")
GATES = ("configuration", "developerConfiguration", "featureGates")
_DISABLED = ("configuration", "developerConfiguration", "disabledFeatureGates")


@dataclass(frozen=True)
class Memory:
    """What we did to the object: entries and gate that we added, and the paths below spec that we made to hold them."""

    entries: tuple[Permit, ...] = ()
    gate: bool = False
    made: frozenset[str] = frozenset()

    def text(self) -> str:
        """Return the annotation's value; empty when nothing of ours is left."""
        if not self.entries and not self.gate:
            return ""
        lists = {listed: [dict(one.value) for one in self.entries if one.listed == listed] for listed in LISTS}
        told = {"entries": {listed: values for listed, values in lists.items() if values}, "gate": self.gate, "made": sorted(self.made)}
        return json.dumps(told, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class Merge:
    """A KubeVirt object before and after. added: what was not there. restricts: from now on only what is listed passes."""

    before: Object
    after: Object
    memory: Memory
    added: tuple[Permit, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    restricts: bool = False

    @property
    def patch(self) -> Object:
        """Return the merge patch, bound to the version that was read because lists are replaced whole; empty without a change."""
        changes = merge_patch(self.before, self.after)
        if changes:
            changes.setdefault("metadata", {})["resourceVersion"] = self.before["metadata"]["resourceVersion"]
        return changes


def permitted(cr: Object) -> dict[str, list[Permit]]:
    """Return what a KubeVirt object permits, by list."""
    return {listed: [Permit(listed, value) for value in at(cr, (*PERMITTED, listed)) or ()] for listed in LISTS}


def remembered(cr: Object) -> Memory:
    """Return what the object's annotation tells; Refused when somebody else wrote into it."""
    text = (cr["metadata"].get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return Memory()
    try:
        told = json.loads(text)
        entries = tuple(Permit(listed, dict(value)) for listed in LISTS for value in told["entries"].get(listed, ()))
        return Memory(entries, bool(told["gate"]), frozenset(map(str, told["made"])))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refused(
            what="tell our entries in KubeVirt from others",
            subject=f"annotation {ANNOTATION} of {title(cr)}",
            cause=f"it is not as it was written: {text!r}",
            hint="remove the annotation; every entry then counts as the administrator's",
        ) from error


def title(cr: Object) -> str:
    """Return "KubeVirt kubevirt/kubevirt" for messages."""
    return f"KubeVirt {cr['metadata'].get('namespace', '')}/{cr['metadata']['name']}"


def merge(cr: Object, wanted: Wanted) -> Merge:
    """Return the object with what is wanted and without what was ours and is not wanted any more; nothing wanted is the undoing.

    Refused where KubeVirt serves the same devices itself, and where another operator owns the object.
    """
    memory = remembered(cr)
    listed = permitted(cr)
    ours, lost = _still_ours(memory.entries, listed)
    theirs = _without([one for values in listed.values() for one in values], ours)
    _refuse_rivals(cr, wanted.permits, theirs)
    kept = [one for one in ours if wanted.keeps(one)]
    added = [one for one in wanted.permits if not any(one.is_same(other) for other in (*kept, *theirs))]
    spec = SpecEditor(cr, memory.made)
    for name, values in listed.items():
        left = _without(values, [one for one in ours if one not in kept])
        spec.put((*PERMITTED, name), [dict(one.value) for one in (*left, *added) if one.listed == name])
    needed = bool(kept or wanted.permits)
    gate = _put_gate(spec, needed, memory.gate)
    now = Memory((*kept, *added), gate, frozenset(spec.made))
    restricts = at(cr, PERMITTED) is None and bool(added)
    after = _annotated(spec.cr, now.text())
    done = Merge(
        cr,
        after,
        now,
        tuple(added),
        tuple(_notes(cr, after, lost, wanted, theirs)),
        tuple(_warnings(cr, after, wanted, theirs, needed)),
        restricts,
    )
    if wanted.permits and done.patch:
        _refuse_owned(cr, done.added or wanted.permits)
    return done


def excerpt(cr: Object) -> Object:
    """Return of an object what a merge may touch, for the diff."""
    found: Object = {"annotation": (cr["metadata"].get("annotations") or {}).get(ANNOTATION)}
    found.update((way[-1], at(cr, way)) for way in (PERMITTED, GATES))
    return {key: value for key, value in found.items() if value is not None}


def strangers(vms: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return "NAMESPACE/NAME asks for RESOURCE" of VMs and VMIs that ask for a resource which is none of the names."""
    found = set()
    for vm in vms:
        spec = vm.get("spec") or {}
        devices = get((spec.get("template") or {}).get("spec") or spec, ("domain", "devices")) or {}
        for one in [*(devices.get("gpus") or ()), *(devices.get("hostDevices") or ())]:
            if one.get("deviceName") and one["deviceName"] not in names:
                found.add(f"{vm['metadata'].get('namespace', '')}/{vm['metadata']['name']} asks for {one['deviceName']}")
    return sorted(found)


def _still_ours(entries: Sequence[Permit], listed: Mapping[str, Sequence[Permit]]) -> tuple[list[Permit], list[Permit]]:
    """Return the remembered entries that stand there as we wrote them, and the others."""
    rest = [one for values in listed.values() for one in values]
    ours, lost = [], []
    for one in entries:
        if one in rest:
            rest.remove(one)
            ours.append(one)
        else:
            lost.append(one)
    return ours, lost


def _without(values: Sequence[Permit], gone: Sequence[Permit]) -> list[Permit]:
    """Return the values without those that go; of equal ones the later goes, since ours are added at the end."""
    left = list(reversed(values))
    for one in gone:
        if one in left:
            left.remove(one)
    return left[::-1]


def _put_gate(spec: SpecEditor, needed: bool, ours: bool) -> bool:
    """Add or remove the feature gate; return whether it stands there by us. Disabling it is the administrator's word."""
    gates = list(at(spec.cr, GATES) or ())
    if needed and GATE not in gates and GATE not in (at(spec.cr, _DISABLED) or ()):
        spec.put(GATES, [*gates, GATE])
        return True
    if not needed and ours and GATE in gates:
        spec.put(GATES, [one for one in gates if one != GATE])
        return False
    return ours and GATE in gates


def _refuse_rivals(cr: Object, permits: Sequence[Permit], theirs: Sequence[Permit]) -> None:
    """Refuse devices that virt-handler hands out too: an external entry does not cancel another one (device_controller.go)."""
    for one in permits:
        for other in theirs:
            if not other.external and one.shares_devices(other):
                raise Refused(
                    what="permit a resource in KubeVirt",
                    subject=f"{one} beside {other} of {title(cr)}",
                    cause="the second has no externalResourceProvider: true, so KubeVirt's virt-handler would hand out the same devices",
                    hint="set externalResourceProvider: true in that entry, or take the devices out of the declaration",
                )


def _refuse_owned(cr: Object, permits: Sequence[Permit]) -> None:
    """Refuse an object that the HyperConverged operator writes: it puts back whatever somebody else changes there."""
    owners = [one.get("kind") for one in cr["metadata"].get("ownerReferences") or ()]
    manager = (cr["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by")
    if "HyperConverged" in owners or manager == "hco-operator":
        raise Refused(
            what="write into KubeVirt",
            subject=title(cr),
            cause="the HyperConverged operator writes this object and would undo it",
            hint="put into spec.permittedHostDevices of the HyperConverged object, with externalResourceProvider: true: "
            + ", ".join(map(str, permits)),
        )


def _notes(cr: Object, after: Object, lost: Sequence[Permit], wanted: Wanted, theirs: Sequence[Permit]) -> list[str]:
    notes = [f"{one} was changed or taken out by somebody: what is in its place is not ours any more" for one in lost]
    notes += [f"{one} is the administrator's and stays so" for one in wanted.permits if any(one.is_same(other) for other in theirs)]
    if at(cr, PERMITTED) is not None and at(after, PERMITTED) is None:
        notes.append(f"{title(cr)} has no permittedHostDevices any more, as before: every resource passes")
    if GATE in (at(cr, GATES) or ()) and GATE not in (at(after, GATES) or ()) and theirs:
        notes.append(f"feature gate {GATE} was not there before and is gone again: entries of others are of no use to hostDevices now")
    return notes


def _warnings(cr: Object, after: Object, wanted: Wanted, theirs: Sequence[Permit], needed: bool) -> list[str]:
    names = {one.resource for values in permitted(after).values() for one in values}
    warnings = [
        f"{name} is not permitted in KubeVirt: it is declared without an id (USB: vendor and product), and no node told one"
        for name in wanted.resources
        if name not in names and at(after, PERMITTED) is not None
    ]
    warnings += [
        f"{other} of {title(cr)} is served by KubeVirt under a name of ours: on a node with both kinds of devices they fight for it"
        for other in theirs
        if not other.external and other.resource in wanted.resources
    ]
    if needed and GATE not in (at(after, GATES) or ()):
        warnings.append(f"{title(cr)} disables feature gate {GATE}: VMs may ask for our resources as gpus only, not as hostDevices")
    return warnings


def _annotated(cr: Object, text: str) -> Object:
    annotations = {key: value for key, value in (cr["metadata"].get("annotations") or {}).items() if key != ANNOTATION}
    if text:
        annotations[ANNOTATION] = text
    cr["metadata"].pop("annotations", None)
    if annotations:
        cr["metadata"]["annotations"] = annotations
    return cr

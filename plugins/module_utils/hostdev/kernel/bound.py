"""State "bound": observe the machine, plan what the declaration asks of it, do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..device.address import Address
from ..device.declaration import Declaration, Entry
from ..device.faults import Absent, Fault, Refused, Timeout, Unsupported
from ..device.holding import Asked
from ..device.pci import VFIO_PCI, Function
from ..root import Root
from .apply import bind, load_vfio
from .binding import Move, plan_binding
from .bootloader import next_words
from .claims import Claim, read_claims, unmatched
from .facts import MachineFacts
from .iommu import OK as IOMMU_OK
from .iommu import Verdict, read_iommu
from .leaving import Leaving, give_all_back, plan_leaving
from .pci import read_function
from .persist import Persistence, apply_persistence, mark_booted, mark_released, plan_persistence
from .record import Record, read_record, write_record
from .recording import with_claims
from .safety import HUNG_NOW, Refusal, hung_now, read_scene, refusals, warnings


@dataclass(frozen=True)
class Wishes:
    """How binding is wanted. management: local addresses that the machine is managed by. now: move devices in this boot.
    persistent: bind them at each boot. ask: asks for the pods that hold devices which are no longer declared."""

    management: tuple[str, ...] = ()
    now: bool = True
    persistent: bool = True
    ask: Callable[[], Asked] = Asked


@dataclass(frozen=True)
class BoundPlan:
    """All that was observed and what follows from it. moves: none when all is bound or nothing may be moved in this boot.

    waiting: claims that only the next boot binds. missing: entries without a device on this machine. leaving: what was bound
    for a declaration that meant more. hung: by address, the claim that waits because this function's unbind did not return.
    at_boot: what the files for the next boot bind.
    """

    claims: tuple[Claim, ...]
    verdict: Verdict
    refused: tuple[Refusal, ...]
    missing: tuple[Entry, ...]
    moves: tuple[Move, ...]
    waiting: tuple[Move, ...]
    record: Record
    record_changes: bool
    persistence: Persistence
    warnings: tuple[str, ...]
    leaving: Leaving = field(default_factory=Leaving)
    hung: Mapping[str, str] = field(default_factory=dict)
    at_boot: tuple[Function, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether anything is to be done."""
        return bool(self.moves or self.leaving.moves) or self.record_changes or not self.persistence.is_empty

    def diffs(self) -> list[dict[str, Any]]:
        """Return the plan as Ansible shows diffs: the functions' drivers, now and after the reboot, then the files."""
        moves = (*self.moves, *self.leaving.moves)
        steps = [step for move in moves for step in move.steps]
        drivers = {str(one.address): one.driver for claim in self.claims for one in claim.functions}
        drivers.update({name: self.leaving.present[name].driver for name in self.leaving.wanted})
        wanted = {**drivers, **{name: driver for move in self.moves for name, driver in move.wanted.items()}, **self.leaving.wanted}
        reasons = "; ".join(f"{step.action} {step.address}: {step.reason}" for step in steps)
        head = {"before_header": "drivers", "after_header": f"drivers ({reasons})"}
        moved = [{**head, "before": _lines(drivers), "after": _lines(wanted)}] if moves else []
        return moved + self._later() + self.persistence.diffs()

    def _later(self) -> list[dict[str, Any]]:
        # once all is prepared there is nothing left to show: the reboot is not this run's change
        names = {name for move in self.waiting for name in move.wanted} & {str(one.address) for one in self.at_boot}
        if not (names and self.changes):
            return []
        before = {str(one.address): one.driver for one in self.at_boot if str(one.address) in names}
        head = {"before_header": "drivers", "after_header": "drivers, after the reboot"}
        return [{**head, "before": _lines(before), "after": _lines(dict.fromkeys(names, VFIO_PCI))}]


def plan_bound(root: Root, declaration: Declaration, wishes: Wishes) -> BoundPlan:
    """Return the plan for a declaration; reads only."""
    record = read_record(root)
    facts = MachineFacts(root, record.known)
    claims = read_claims(root, declaration, facts)
    # what another VFIO or vGPU driver serves is somebody else's doing, at boot too
    ours = tuple(one for claim in claims for one in claim.functions if one.driver == VFIO_PCI or not one.is_usable)
    at_boot = ours if wishes.persistent else ()
    layout = {address: one.group for address, one in record.functions.items() if one.group}
    verdict = read_iommu(root, [claim.primary for claim in claims], next_words(root), layout=layout)
    leaving = plan_leaving(root, record, claims, wishes.now, wishes.ask)
    after = _without(with_claims(root, record, claims), leaving.left)
    stuck = hung_now(root)
    hung = {str(one.address): claim.title for claim in claims for one in claim.functions if str(one.address) in stuck}
    free = [claim for claim in claims if wishes.now and verdict.active and not {str(one.address) for one in claim.functions} & stuck]
    return BoundPlan(
        claims=claims,
        verdict=verdict,
        refused=refusals(claims, read_scene(root, claims, wishes.management)),
        missing=unmatched(root, declaration, facts),
        moves=plan_binding(free, after.functions),
        waiting=plan_binding([claim for claim in claims if claim not in free], after.functions),
        record=after,
        record_changes=after != record,
        persistence=plan_persistence(root, at_boot),
        warnings=warnings(claims),
        leaving=leaving,
        hung=hung,
        at_boot=at_boot,
    )


def _without(record: Record, names: Iterable[str]) -> Record:
    return replace(record, functions={name: one for name, one in record.functions.items() if name not in set(names)})


def check_bound(plan: BoundPlan, missing_is_wrong: bool = True) -> None:
    """Raise what forbids the plan as a whole: every refusal at once, devices that are not there, an IOMMU that no reboot mends."""
    if plan.refused:
        raise Refused(
            what="take devices from the host",
            subject=", ".join(dict.fromkeys(one.address for one in plan.refused)),
            cause=" | ".join(one.text() for one in plan.refused),
            hint="nothing was changed",
        )
    if plan.missing and missing_is_wrong:
        raise Absent(
            what="find declared devices",
            subject="; ".join(f"{entry.position} ({entry.resource}): {' or '.join(map(str, entry.selectors))}" for entry in plan.missing),
            cause="no PCI function of this machine matches",
            hint="lspci -Dnn lists what there is; nothing was changed",
        )
    if plan.claims and not plan.verdict.active and not plan.verdict.curable:
        raise Unsupported(
            what="bind to vfio-pci",
            subject=", ".join(claim.title for claim in plan.claims),
            cause=f"{plan.verdict.code}: {'; '.join(plan.verdict.evidence)}",
            hint=f"{plan.verdict.advice}. Nothing was changed: without IOMMU the devices would end without driver",
        )


@dataclass(frozen=True)
class Outcome:
    """What did not go as planned and needs a reboot. hung: a text per unbind. missed: by address, why it was not given back."""

    hung: tuple[str, ...] = ()
    missed: Mapping[str, str] = field(default_factory=dict)


def apply_bound(root: Root, plan: BoundPlan) -> Outcome:
    """Do the plan: the record first, then the moves, then what is for the next boot, then what goes back to the host.

    A move that missed is rolled back and not bound at boot; its Fault is raised when all others are done, what was recorded
    stays recorded.
    """
    if plan.record_changes:
        write_record(root, plan.record)
    if plan.moves:
        mark_released(root, [name for move in plan.moves for name in move.wanted], released=False)
        load_vfio(root)
    faults = [(move, fault) for move in plan.moves for fault in _bind(root, move)]
    hung = tuple(fault.text() for _move, fault in faults if isinstance(fault, Timeout))
    failed = [(move, fault) for move, fault in faults if not isinstance(fault, Timeout)]
    mark_released(root, plan.leaving.wanted, released=True)
    apply_persistence(root, _what_stands(root, plan, [move for move, _fault in failed]))
    if plan.claims:
        mark_booted(root)
    missed = give_all_back(root, plan.leaving)
    if plan.leaving.moves:
        write_record(root, _without(plan.record, plan.leaving.touched - set(missed)))
    _raise_all([fault for _move, fault in failed], hung)
    return Outcome(hung, missed)


def _bind(root: Root, move: Move) -> list[Fault]:
    try:
        bind(root, move)
    except Fault as fault:
        return [fault]
    return []


def _what_stands(root: Root, plan: BoundPlan, failed: Iterable[Move]) -> Persistence:
    """Return what is for the next boot, without the functions that went back to their drivers in this one."""
    names = {name for move in failed for name in move.wanted}
    return plan_persistence(root, [one for one in plan.at_boot if str(one.address) not in names]) if names else plan.persistence


def _raise_all(faults: Sequence[Fault], hung: Sequence[str]) -> None:
    """Raise the faults of the moves as one; what hangs is told with them, because there will be no other result."""
    if len(faults) == 1 and not hung:
        raise faults[0]
    if faults:
        raise Fault(
            what=faults[0].what,
            subject=", ".join(fault.subject for fault in faults),
            cause=" | ".join([*(fault.cause for fault in faults), *hung]),
            hint="; ".join(dict.fromkeys(fault.hint for fault in faults if fault.hint)),
        )


def describe(root: Root, claims: Sequence[Claim], record: Record, waiting: Iterable[Move] = ()) -> list[dict[str, Any]]:
    """Return the functions as they are now, for results: address, id, driver, former, group, resource, part, state."""
    later = {name for move in waiting for name in move.wanted}
    rows = [(claim.resource, member.part, member.address) for claim in claims for member in claim.members]
    return [{**_row(root, address, record, later), "resource": resource, "part": part} for resource, part, address in rows]


def _row(root: Root, address: Address, record: Record, later: set[str]) -> dict[str, Any]:
    now = read_function(root, address)
    former = record.functions.get(str(address))
    state = "bound" if now.is_usable else "pending reboot" if str(address) in later else "not bound"
    return {
        "address": str(address),
        "id": now.id,
        "driver": now.driver,
        "former": former.driver if former else now.driver,
        "pre_bound": bool(former and former.pre_bound),
        "group": now.iommu_group,
        "state": state,
    }


def _left_rows(root: Root, plan: BoundPlan, missed: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for name in sorted({**plan.leaving.wanted, **plan.leaving.waiting, **plan.leaving.busy}):
        former = plan.record.functions[name]
        row = _row(root, Address.parse(name), plan.record, set())
        state = row["state"] if row["driver"] == VFIO_PCI and name in plan.leaving.wanted else plan.leaving.state(name, missed)
        rows.append({**row, "state": state, "resource": former.resource, "part": former.part})
    return rows


def result(root: Root, plan: BoundPlan, outcome: Optional[Outcome] = None) -> dict[str, Any]:
    """Return the keys that every run in this state has; without an outcome nothing was done."""
    done, leaving = outcome or Outcome(), plan.leaving
    hung = [f"{name}: {HUNG_NOW}: {title} waits for the next boot" for name, title in sorted(plan.hung.items())]
    return {
        "changed": plan.changes,
        "functions": describe(root, plan.claims, plan.record, plan.waiting) + _left_rows(root, plan, done.missed),
        "refused": [one.as_dict() for one in plan.refused],
        "missing": [entry.position for entry in plan.missing],
        "iommu": plan.verdict.as_dict(),
        "reboot_required": bool(plan.waiting or plan.hung or done.hung or leaving.waiting or done.missed),
        "diff": plan.diffs(),
        "notes": [*_iommu_notes(plan), *plan.warnings, *plan.persistence.notes, *hung, *done.hung, *leaving.notes(done.missed)],
    }


def _iommu_notes(plan: BoundPlan) -> list[str]:
    # devices bind without interrupt remapping too, and then no VM starts with them
    told = plan.claims and plan.verdict.active and plan.verdict.code != IOMMU_OK
    return [f"{plan.verdict.code}: {plan.verdict.advice}"] if told else []


def _lines(drivers: Mapping[str, str]) -> str:
    return "".join(f"{name} {driver or '(none)'}\n" for name, driver in sorted(drivers.items()))


def as_fault(plan: BoundPlan, missing_is_wrong: bool = True) -> Optional[Fault]:
    """Return what check_bound would raise, for callers that only report."""
    try:
        check_bound(plan, missing_is_wrong)
    except Fault as fault:
        return fault
    return None

"""State "released": everything that the record knows goes back to what it was, and nothing of ours is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..device.address import Address
from ..device.faults import Busy
from ..device.holding import Asked
from ..device.pci import Function
from ..root import Root
from .apply import give_back
from .binding import Return, plan_release
from .pci import DEVICES, read_function
from .persist import Persistence, apply_persistence, forget_run_state, mark_released, plan_persistence
from .record import Record, read_record, write_record
from .safety import HUNG_NOW, hung_now
from .usage import open_nodes, pods_holding, vfio_nodes


@dataclass(frozen=True)
class ReleasePlan:
    """What is recorded, what is there, what has to move, which files go.

    users: processes that have a device open. held: pods that hold one. unasked: why nobody could be asked for pods.
    stuck: by address, why a recorded function is not touched before the next boot.
    """

    record: Record
    present: Mapping[str, Function]
    back: Return
    persistence: Persistence
    users: tuple[str, ...]
    held: tuple[str, ...] = ()
    unasked: str = ""
    stuck: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Return whether anything is to be done."""
        return bool(set(self.record.functions) - set(self.stuck)) or not self.persistence.is_empty

    @property
    def notes(self) -> list[str]:
        """Return what should be known beside what moves: whether nobody was asked, and from whom devices are taken."""
        texts = [f"{text}; it is taken by force" for text in self.held]
        return [*texts, *([f"which pods hold the devices is not known: {self.unasked}"] if self.unasked else [])]

    def diffs(self) -> list[dict[str, Any]]:
        """Return the plan as Ansible shows diffs."""
        wanted = {name: driver for move in self.back.moves for name, driver in move.wanted.items()}
        before = "".join(f"{name} {self.present[name].driver or '(none)'}\n" for name in sorted(wanted))
        after = "".join(f"{name} {wanted[name] or '(native)'}\n" for name in sorted(wanted))
        moved = [{"before_header": "drivers", "after_header": "drivers", "before": before, "after": after}] if wanted else []
        return moved + self.persistence.diffs()


def plan_released(root: Root, ask: Callable[[], Asked] = Asked) -> ReleasePlan:
    """Return the plan of giving everything back; reads only. ask: asks for holders, which costs a second, when something moves."""
    record = read_record(root)
    # what was pulled out since has no folder; its entry is dropped
    there = [name for name in record.functions if (root.at(DEVICES) / name).exists()]
    present = {name: read_function(root, Address.parse(name)) for name in there}
    # any write to a function whose unbind hangs waits for its lock, for ever
    stuck = dict.fromkeys(sorted(hung_now(root) & set(present)), HUNG_NOW)
    back = plan_release({name: former for name, former in record.functions.items() if name not in stuck}, present)
    moving = [present[name] for move in back.moves for name in move.wanted]
    opened = open_nodes(root, {node for one in moving for node in vfio_nodes(one)})
    users = tuple(text for texts in opened.values() for text in texts)
    asked = ask() if moving else Asked()
    held = tuple(text for one in moving for text in pods_holding(one, record.functions[str(one.address)].resource, asked.holdings))
    return ReleasePlan(record, present, back, plan_persistence(root, ()), users, held, asked.fault, stuck)


def check_released(plan: ReleasePlan, force: bool = False) -> None:
    """Raise Busy when a guest has a device open, or a pod holds one and that is not to be overridden by force.

    Against an open device no force helps: the kernel would block our write until the guest ends.
    """
    in_the_way = plan.users if force else (*plan.users, *plan.held)
    if in_the_way:
        mend = "stop the VMs on this node first" if plan.users else "delete these pods first, or take their devices by force"
        raise Busy(
            what="give devices back",
            subject=", ".join(move.title for move in plan.back.moves),
            cause="; ".join(in_the_way),
            hint=f"{mend}; nothing was changed",
        )


def apply_released(root: Root, plan: ReleasePlan) -> Mapping[str, str]:
    """Do the plan and return, by address, what did not come back as it was; those stay in the record, which is written last."""
    moving = [name for move in plan.back.moves for name in move.wanted]
    mark_released(root, moving, released=True)
    apply_persistence(root, plan.persistence)
    missed = {**plan.stuck, **{name: reason for move in plan.back.moves for name, reason in give_back(root, move).items()}}
    rest = {name: former for name, former in plan.record.functions.items() if name in missed}
    if rest != plan.record.functions:
        write_record(root, replace(plan.record, functions=rest))
    forget_run_state(root)
    return missed


def result(root: Root, plan: ReleasePlan, missed: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys that every run in this state has, the same as in state bound."""
    missed = {**plan.stuck, **missed}
    return {
        "changed": plan.changes,
        "functions": [_row(root, plan, name, missed) for name in sorted(plan.record.functions)],
        "refused": [],
        "missing": [],
        "iommu": {},
        "reboot_required": bool(missed),
        "diff": plan.diffs(),
        "notes": [*(f"{name}: {reason}" for name, reason in sorted({**plan.back.left, **missed}.items())), *plan.notes],
    }


def _row(root: Root, plan: ReleasePlan, name: str, missed: Mapping[str, str]) -> dict[str, Any]:
    former = plan.record.functions[name]
    there = name in plan.present
    now = read_function(root, Address.parse(name)) if there else None
    return {
        "address": name,
        "id": former.id,
        "driver": now.driver if now else "",
        "former": former.driver,
        "pre_bound": former.pre_bound,
        "group": now.iommu_group if now else "",
        "resource": former.resource,
        "part": former.part,
        "state": "not released" if name in missed else "released" if there else "absent",
    }

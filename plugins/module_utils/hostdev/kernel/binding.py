"""The plan of binding and of giving back: ordered steps with reasons, from values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..device.pci import VFIO_PCI, Function
from .claims import SELECTED, Claim, Member
from .record import Former

OVERRIDE, UNBIND, PROBE, LOAD = "override", "unbind", "probe", "load"


@dataclass(frozen=True)
class Step:
    """One change of the kernel's state. action: a word above; value: what is written or loaded; reason: for people."""

    action: str
    address: str
    value: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the step for JSON output."""
        return {"action": self.action, "address": self.address, "value": self.value, "reason": self.reason}


@dataclass(frozen=True)
class Move:
    """Steps that are done together or not at all, and the driver that each function has to have afterwards.

    wanted: by address; empty text means that any driver but a VFIO one will do. former: what to restore on a miss.
    group: the IOMMU group that has to be viable afterwards, empty when none has to.
    """

    title: str
    steps: tuple[Step, ...]
    wanted: Mapping[str, str]
    former: Mapping[str, Former]
    group: str = ""


def plan_binding(claims: Sequence[Claim], formers: Mapping[str, Former]) -> tuple[Move, ...]:
    """Return one move per claim that is not as it should be; none when all is bound. formers has every member.

    Overrides are set on all functions before any is unbound, so that no event can bring a native driver back in between;
    companions go before the device that they hang on (audio and USB-C controllers use the GPU's driver).
    """
    moves = []
    for claim in claims:
        todo = [member for member in claim.members if not member.function.is_usable]
        if todo:
            names = [str(one.address) for one in todo]
            former = {name: formers[name] for name in names}
            moves.append(Move(claim.title, tuple(_bind_steps(claim, todo)), dict.fromkeys(names, VFIO_PCI), former, claim.group))
    return tuple(moves)


def _bind_steps(claim: Claim, todo: Sequence[Member]) -> list[Step]:
    steps = [
        Step(OVERRIDE, str(one.address), VFIO_PCI, f"{one.part} of {claim.resource}") for one in todo if one.function.override != VFIO_PCI
    ]
    leaving = sorted((one for one in todo if one.function.driver), key=lambda one: (one.part == SELECTED, one.address))
    for one in leaving:
        steps.append(Step(UNBIND, str(one.address), one.function.driver, f"{one.function.driver} has to let go of the {one.part}"))
    arriving = sorted(todo, key=lambda one: (one.part != SELECTED, one.address))
    return steps + [Step(PROBE, str(one.address), VFIO_PCI, f"{VFIO_PCI} takes the {one.part}") for one in arriving]


@dataclass(frozen=True)
class Return:
    """What giving back amounts to. left: recorded functions that are as they should be, gone or replaced, with the reason."""

    moves: tuple[Move, ...]
    left: Mapping[str, str]


def plan_release(formers: Mapping[str, Former], present: Mapping[str, Function]) -> Return:
    """Return one move per group of recorded functions that are not as they were; present holds those that still exist."""
    groups: dict[str, list[str]] = {}
    left: dict[str, str] = {}
    for address, former in sorted(formers.items()):
        reason = _settled(former, present.get(address))
        if reason:
            left[address] = reason
        else:
            groups.setdefault(present[address].iommu_group or address.rpartition(".")[0], []).append(address)
    return Return(tuple(_give_back(number, names, formers, present) for number, names in groups.items()), left)


def _settled(former: Former, function: Function | None) -> str:
    if function is None:
        return "no longer in the machine"
    if function.id != former.id:
        return f"another card ({function.id}) is there now"
    if former.pre_bound:
        return "was bound before us and stays so" if function.override == former.override else ""
    if VFIO_PCI in (function.override, function.driver):
        return ""
    if former.driver and function.driver != former.driver and not function.driver:
        return ""
    return f"on {function.driver or 'no driver'}, as before" if function.driver == former.driver else f"on {function.driver}"


def _give_back(number: str, names: Sequence[str], formers: Mapping[str, Former], present: Mapping[str, Function]) -> Move:
    """Overrides first; then each leaves vfio-pci, companions first; then the GPU's driver comes before its companions'."""
    marked = [name for name in names if present[name].override != formers[name].override]
    steps = [Step(OVERRIDE, name, formers[name].override, "as it was before us") for name in marked]
    moving = [name for name in names if not formers[name].pre_bound]
    leaving = sorted((name for name in moving if present[name].driver == VFIO_PCI), key=lambda name: (formers[name].part == SELECTED, name))
    steps += [Step(UNBIND, name, VFIO_PCI, "goes back to the host") for name in leaving]
    arriving = sorted(moving, key=lambda name: (formers[name].part != SELECTED, name))
    for name in arriving:
        former = formers[name]
        modalias = former.modalias or present[name].modalias
        if modalias:
            steps.append(Step(LOAD, name, modalias, f"{former.driver or 'its native driver'} may not be loaded in this boot"))
        steps.append(Step(PROBE, name, former.driver, f"{former.driver or 'its native driver'} takes it back"))
    wanted = {name: formers[name].driver for name in moving}
    return Move(f"group {number}", tuple(steps), wanted, {})

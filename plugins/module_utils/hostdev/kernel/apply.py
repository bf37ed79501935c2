"""The applier of moves: writes to the kernel, reads the driver links back, rolls a move back when one function missed.

The kernel's interfaces report success while nothing happened, so only the `driver` link counts. An unbind may hang in
the driver for ever; it is written from a child process with a time limit and never tried again in the same boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Callable

from ..device.faults import Fault, Timeout
from ..device.pci import VFIO_PCI
from ..root import Root, read_link_name, write_file
from .binding import LOAD, OVERRIDE, PROBE, UNBIND, Move, Step
from .pci import DEVICES, read_group
from .safety import HUNG, boot_id

UNBIND_SECONDS = 60.0
PROBE_SECONDS = 120.0
_PROBE = ("bus", "pci", "drivers_probe")


def load_vfio(root: Root) -> None:
    """Load vfio-pci unless it is loaded or built in; Fault with modprobe's answer."""
    if not root.sysfs("bus", "pci", "drivers", VFIO_PCI).exists():
        hint = "is the kernel's vfio-pci module installed (linux-modules-extra or the like), and is it not blacklisted?"
        root.must(["modprobe", VFIO_PCI], what="load the VFIO driver", hint=hint)


def bind(root: Root, move: Move) -> None:
    """Do a move towards vfio-pci; on any miss all its functions get their former override and driver back, and a Fault says so.

    Timeout (with the functions that hang in its subject) when an unbind did not return: only a reboot helps then.
    """
    try:
        for step in move.steps:
            _DOERS[step.action](root, step)
        _read_back(root, move)
        _check_viable(root, move)
    except Fault as fault:
        hung = _mark_hung(root, move, fault)
        back = _roll_back(root, move, hung)
        kind = Timeout if hung else Fault
        cause = f"{fault.what}: {fault.subject}: {fault.cause}; {back}"
        hint = "reboot: the boot-time binding takes it before its driver does" if hung else fault.hint
        raise kind(what="bind to vfio-pci", subject=move.title, cause=cause, hint=hint) from fault


def give_back(root: Root, move: Move) -> Mapping[str, str]:
    """Do a move away from vfio-pci and return, by address, what did not come back as it was (empty when all did).

    A driver that does not take its device back is reported, not tried again: some cards need a reset or a reboot first.
    """
    missed: dict[str, str] = {}
    for step in move.steps:
        if step.address in missed:
            continue
        try:
            _DOERS[step.action](root, step)
        except Timeout as late:
            _mark(root, step.address)
            missed[step.address] = late.cause
        except Fault as fault:
            if step.action != LOAD:
                missed[step.address] = fault.cause
    for name, driver in move.wanted.items():
        now = _driver(root, name)
        if name not in missed and (now == VFIO_PCI or (driver and now != driver)):
            missed[name] = f"its driver link reads {now or 'nothing'}, it was {driver or 'without driver'}"
    return missed


def _override(root: Root, step: Step) -> None:
    root.tell_kernel(root.at(DEVICES) / step.address / "driver_override", f"{step.value}\n")


def _unbind(root: Root, step: Step) -> None:
    link = root.at(DEVICES) / step.address / "driver"
    if link.exists():
        root.tell_kernel(link / "unbind", step.address, UNBIND_SECONDS)


def _probe(root: Root, step: Step) -> None:
    root.tell_kernel(root.sysfs(*_PROBE), step.address, PROBE_SECONDS)


def _load(root: Root, step: Step) -> None:
    # a module that was never loaded in this boot cannot take its device; the modalias names it, the driver's name may not
    if step.value:
        root.must(["modprobe", "--quiet", step.value], what="load the former driver's module")


_DOERS: dict[str, Callable[[Root, Step], None]] = {OVERRIDE: _override, UNBIND: _unbind, PROBE: _probe, LOAD: _load}


def _driver(root: Root, name: str) -> str:
    return read_link_name(root.at(DEVICES) / name / "driver") or ""


def _read_back(root: Root, move: Move) -> None:
    for name, driver in move.wanted.items():
        now = _driver(root, name)
        if now != driver:
            said = kernel_words(root, name)
            raise Fault(
                what="read the driver link back",
                subject=name,
                cause=f"it reads {now or 'nothing'} instead of {driver}{f' (kernel: {said})' if said else ''}",
                hint="every write was accepted, so the kernel log has the reason: dmesg | grep vfio",
            )


def _check_viable(root: Root, move: Move) -> None:
    held = [member.label() for member in read_group(root, move.group).endpoints if member.blocks_group] if move.group else []
    if held:
        cause = f"not viable: still on drivers of the host: {', '.join(held)}"
        raise Fault(what="check the IOMMU group", subject=f"group {move.group}", cause=cause)


def _mark_hung(root: Root, move: Move, fault: Fault) -> tuple[str, ...]:
    if not isinstance(fault, Timeout):
        return ()
    hung = tuple(step.address for step in move.steps if step.address in fault.subject)[:1]
    for name in hung:
        _mark(root, name)
    return hung


def _mark(root: Root, name: str) -> None:
    write_file(root.at(HUNG) / name, boot_id(root))


def _roll_back(root: Root, move: Move, hung: tuple[str, ...]) -> str:
    """Give every function of the move its former override and driver again; the stuck ones are not touched (their lock is held)."""
    free = [name for name in move.wanted if name not in hung]
    for name in free:
        for step in _undo(root, move, name):
            # what did not come back is read from the driver links below
            with suppress(Fault):
                _DOERS[step.action](root, step)
    had = {name: move.former[name].driver for name in free if move.former[name].driver}
    texts = [f"{name} {'is back on' if _driver(root, name) == driver else 'did NOT come back to'} {driver}" for name, driver in had.items()]
    return "; ".join(texts + [f"{name} hangs in its driver" for name in hung]) or "nothing else was changed"


def _undo(root: Root, move: Move, name: str) -> list[Step]:
    steps = [Step(OVERRIDE, name, move.former[name].override, "roll back")]
    if _driver(root, name) == VFIO_PCI:
        steps.append(Step(UNBIND, name, VFIO_PCI, "roll back"))
    if move.former[name].driver:
        steps.append(Step(PROBE, name, move.former[name].driver, "roll back"))
    return steps


def kernel_words(root: Root, name: str) -> str:
    """Return the kernel log's last line about a function, without its time stamp; empty when there is none."""
    try:
        done = root.run(["dmesg"], timeout=30)
    except Fault:
        return ""
    lines = [line for line in done.out.splitlines() if name in line]
    return lines[-1].partition("] ")[2] or lines[-1] if lines else ""

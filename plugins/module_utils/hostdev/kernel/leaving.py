"""What the record knows and the declaration no longer means: it goes back to the host, in this boot when it is idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..device.address import Address
from ..device.holding import Asked
from ..device.pci import Function
from ..root import Root
from .apply import give_back
from .binding import Move, plan_release
from .claims import Claim
from .pci import DEVICES, read_function
from .persist import RELEASED
from .record import Former, Record
from .safety import HUNG_NOW, hung_now
from .usage import open_nodes, pods_holding, vfio_nodes


@dataclass(frozen=True)
class Leaving:
    """present: what is there of the functions that are no longer declared. moves: given back in this boot.

    By address, each with the reason: waiting for the next boot, which no longer binds them; busy, so that they stay until a
    later run; left, where nothing is to be done and only the record forgets them. unasked: why nobody could be asked for pods.
    """

    present: Mapping[str, Function] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    unasked: str = ""

    @property
    def wanted(self) -> dict[str, str]:
        """Return by address the driver that each function that moves goes back to, "(native)" where that is not known."""
        return {name: driver or "(native)" for move in self.moves for name, driver in move.wanted.items()}

    @property
    def touched(self) -> frozenset[str]:
        """Return all functions of the moves, also those of which only the override changes."""
        return frozenset(name for move in self.moves for name in _names(move))

    def notes(self, missed: Mapping[str, str]) -> list[str]:
        """Return what people should know; missed: by address, why a function did not come back."""
        texts = {
            **{name: f"was left alone: {reason}" for name, reason in self.left.items()},
            **{name: f"stays on vfio-pci until nothing uses it: {reason}" for name, reason in self.busy.items()},
            **{name: f"goes back with the next boot: {reason}" for name, reason in {**self.waiting, **missed}.items()},
        }
        unasked = [f"which pods hold what is no longer declared is not known: {self.unasked}"] if self.unasked else []
        return [*(f"{name}: no longer declared, {text}" for name, text in sorted(texts.items())), *unasked]

    def state(self, name: str, missed: Mapping[str, str]) -> str:
        """Return the word for a function's state in results."""
        if name in self.busy:
            return "in use"
        return "pending reboot" if name in self.waiting or name in missed else "released"


def plan_leaving(root: Root, record: Record, claims: Sequence[Claim], now: bool, ask: Callable[[], Asked] = Asked) -> Leaving:
    """Return the plan for the recorded functions that no claim holds; now: whether devices may move in this boot. Reads only.

    ask: asks for the pods that hold devices, when something is to move.
    """
    claimed = {str(one.address) for claim in claims for one in claim.functions}
    formers = {name: former for name, former in record.functions.items() if name not in claimed}
    present = {name: read_function(root, Address.parse(name)) for name in formers if (root.at(DEVICES) / name).exists()}
    stuck = dict.fromkeys(hung_now(root) & set(present), HUNG_NOW)
    bare = {name: "no driver took it at boot" for name, one in present.items() if name not in stuck and _is_settled(root, one)}
    back = plan_release({name: former for name, former in formers.items() if name not in {**stuck, **bare}}, present)
    left = {**back.left, **bare}
    if not now:
        later = {name: "nothing is moved in this boot" for move in back.moves for name in _names(move)}
        return Leaving(present, waiting={**stuck, **later}, left=left)
    asked = ask() if back.moves else Asked()
    users = {move.title: _users(root, [present[name] for name in _names(move)], formers, asked) for move in back.moves}
    busy = {name: users[move.title] for move in back.moves if users[move.title] for name in _names(move)}
    return Leaving(present, tuple(move for move in back.moves if not users[move.title]), stuck, busy, left, asked.fault)


def give_all_back(root: Root, leaving: Leaving) -> dict[str, str]:
    """Do the moves and return, by address, why a function did not come back."""
    return {name: reason for move in leaving.moves for name, reason in give_back(root, move).items()}


def _is_settled(root: Root, function: Function) -> bool:
    # what was given back in this boot and has no driver may still get one; a boot has tried them all
    given_back = (root.at(RELEASED) / str(function.address)).exists()
    return not (function.driver or function.override or given_back)


def _names(move: Move) -> list[str]:
    return list(dict.fromkeys([*move.wanted, *(step.address for step in move.steps)]))


def _users(root: Root, functions: Sequence[Function], formers: Mapping[str, Former], asked: Asked) -> str:
    opened = open_nodes(root, {node for one in functions for node in vfio_nodes(one)})
    held = [text for one in functions for text in pods_holding(one, formers[str(one.address)].resource, asked.holdings)]
    return "; ".join([*(text for texts in opened.values() for text in texts), *held])

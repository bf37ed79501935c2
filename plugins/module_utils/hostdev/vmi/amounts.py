"""spec.domain.resources and spec.domain.memory: how much the guest and its pod have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .quantity import Quantity
from .schema import QUANTITY, Kind, Reading, join, nested, one_of, row

MEMORY, CPU = "memory", "cpu"


@dataclass(frozen=True)
class Amounts:
    """resources.requests or .limits: quantities by the name of the resource, in the order written."""

    values: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def memory(self) -> Quantity | None:
        """Return the memory in bytes, None when it does not stand here."""
        return self.values.get(MEMORY)

    @property
    def cpu(self) -> Quantity | None:
        """Return the CPUs, None when they do not stand here."""
        return self.values.get(CPU)

    @property
    def others(self) -> dict[str, Quantity]:
        """Return everything that is neither memory nor CPU."""
        return {name: amount for name, amount in self.values.items() if name not in (MEMORY, CPU)}


def _read(value: Any, path: str, reading: Reading) -> Any:
    if not isinstance(value, Mapping):
        reading.wrong(path, "has to be a mapping of resource names to quantities")
        return None
    return Amounts({str(name): QUANTITY.read(amount, join(path, name), reading) for name, amount in value.items() if amount is not None})


AMOUNTS = Kind(_read, lambda amounts: {name: str(amount) for name, amount in amounts.values.items()})


@dataclass(frozen=True)
class Resources:
    """What the launcher pod asks for beyond what the guest needs anyway.

    A resource of gpus or hostDevices may be repeated here with the number of its entries; every other number is refused.
    """

    unserved: ClassVar[Mapping[str, str]] = {
        "overcommitGuestOverhead": "devices hold all of the guest's memory: overhead cannot be overcommitted",
    }

    requests: Amounts = row("requests", AMOUNTS, Amounts())
    limits: Amounts = row("limits", AMOUNTS, Amounts())


@dataclass(frozen=True)
class Hugepages:
    """The guest's memory is made of huge pages of this size, which the pod asks for."""

    page_size: Quantity = row("pageSize", QUANTITY, required=True)


@dataclass(frozen=True)
class ReservedOverhead:
    """More overhead than the formula gives, and whether memory is locked where no device asks for it."""

    added: Quantity | None = row("addedOverhead", QUANTITY)
    lock: str = row("memLock", one_of("Required", "NotRequired"), "")


@dataclass(frozen=True)
class Memory:
    """The guest's memory; max_guest is what it could grow to."""

    guest: Quantity | None = row("guest", QUANTITY)
    max_guest: Quantity | None = row("maxGuest", QUANTITY)
    hugepages: Hugepages | None = row("hugepages", nested(Hugepages))
    reserved: ReservedOverhead | None = row("reservedOverhead", nested(ReservedOverhead))

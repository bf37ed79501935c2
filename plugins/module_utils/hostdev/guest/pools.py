"""Address pools: one per environment variable, whatever list of the manifest draws from it.

KubeVirt keeps a pool per list, so that a resource asked for in both is handed out twice (its
pkg/virt-launcher/virtwrap/device/hostdevice/addresspool.go); here each address goes to one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Dict, Generic, List, Optional, Tuple, TypeVar

from ..device.faults import Absent, Fault, Refused
from ..device.names import addresses_of, variable

T = TypeVar("T")
_BY_PLUGIN = "The device plugin sets it when the kubelet allocates the device"


class Unset(Absent):
    """No variable: the resource is not known to this launcher."""


class Exhausted(Absent):
    """The variable is there and all of its addresses are given away."""


class Miscounted(Refused):
    """Fewer addresses than devices; `subject` is the path of the first device that would get none."""


@dataclass
class Pool(Generic[T]):
    """The addresses of one variable; `value` is its text, None when it is not set."""

    variable: str
    value: Optional[str]
    addresses: List[T]

    @property
    def said(self) -> str:
        """Return the variable as an assignment, or that it is not set, for messages."""
        return f"{self.variable} is not set" if self.value is None else f"{self.variable}={self.value!r}"


@dataclass
class Pools(Generic[T]):
    """The pools of one kind of device."""

    prefix: str
    by_variable: Dict[str, Pool[T]]

    def of(self, resource: str) -> Pool[T]:
        """Return the pool from which a resource's addresses come."""
        return self.by_variable[variable(self.prefix, resource)]

    def check(self, wanted: Sequence[Tuple[str, str]]) -> None:
        """Raise Miscounted when a variable has fewer addresses than (path, resource) pairs that draw from it; more are no fault."""
        for pool in self.by_variable.values():
            mine = [(path, resource) for path, resource in wanted if self.of(resource) is pool]
            if len(mine) > len(pool.addresses):
                path, resource = mine[len(pool.addresses)]
                raise Miscounted(
                    what="give every device an address",
                    subject=path,
                    cause=f"{len(mine)} of the manifest's devices ask for {resource}, and {pool.said} ({len(pool.addresses)} addresses)",
                    hint=f"{_BY_PLUGIN}: the pod has to request {resource} {len(mine)} times",
                )

    def take(self, resource: str) -> T:
        """Return the next address of a resource, which is then given away; Unset or Exhausted when there is none."""
        pool = self.of(resource)
        if pool.addresses:
            return pool.addresses.pop(0)
        if pool.value is None:
            raise Unset(what="take an address", subject=resource, cause=pool.said, hint=_BY_PLUGIN)
        raise Exhausted(what="take an address", subject=resource, cause=f"no more addresses in {pool.said}", hint=_BY_PLUGIN)


def read_pools(environment: Mapping[str, str], prefix: str, resources: Iterable[str], parse: Callable[[str], T]) -> Pools[T]:
    """Return the pools of the resources, each variable read once.

    An item that `parse` refuses, an empty item, and an address that stands twice, in one variable or in two, is refused
    with the variable's name.
    """
    pools: Pools[T] = Pools(prefix, {})
    for name in dict.fromkeys(variable(prefix, resource) for resource in resources):
        value = environment.get(name)
        with naming(name, value or ""):
            pools.by_variable[name] = Pool(name, value, [parse(item) for item in addresses_of(value or "")])
    _refuse_repeats(pools)
    return pools


@contextmanager
def naming(name: str, value: str) -> Iterator[None]:
    """Let a Fault of reading a variable's value name the variable and its whole text."""
    try:
        yield
    except Fault as fault:
        subject = fault.subject if repr(value) in fault.subject else f"{fault.subject} in {value!r}"
        raise type(fault)(what=fault.what, subject=f"{name}: {subject}", cause=fault.cause, hint=fault.hint) from fault


def _refuse_repeats(pools: Pools[T]) -> None:
    first: Dict[T, Pool[T]] = {}
    for pool in pools.by_variable.values():
        for address in pool.addresses:
            other = first.get(address)
            if other is not None:
                where = pool.said if other is pool else f"{other.said} and {pool.said}"
                raise Refused(
                    what="give every device an address",
                    subject=str(address),
                    cause=f"it stands twice: {where}",
                    hint="one device cannot be attached twice; two device plugins may be offering it",
                )
            first[address] = pool

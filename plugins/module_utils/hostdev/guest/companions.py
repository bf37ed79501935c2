"""HOSTDEV_COMPANIONS_<NAME>: the other functions of a device that go to the guest with it.

The form is `PRIMARY=A+B,PRIMARY=C`; the plugin sets it for resources declared with `functions: all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Dict, Tuple

from ..device.address import Address
from ..device.faults import Refused
from ..device.names import COMPANIONS, addresses_of, variable
from .addresses import HostAddress
from .pools import Pools, naming

Companions = Dict[Address, Tuple[Address, ...]]
_HINT = "The device plugin sets it; do not set it by hand"
MOST = 7
"""Functions of a PCI slot beside its first."""


def _refuse(name: str, value: str, cause: str) -> Refused:
    return Refused(what="read companions", subject=f"{name}={value!r}", cause=cause, hint=_HINT)


def _parse_unit(unit: str) -> Tuple[Address, Tuple[Address, ...]]:
    primary, mark, rest = unit.partition("=")
    if not mark:
        raise Refused(what="read companions", subject=repr(unit), cause="not of the form PRIMARY=A+B", hint=_HINT)
    addresses = [Address.parse(text.strip()) for text in (primary, *rest.split("+"))]
    if len(addresses) - 1 > MOST:
        cause = f"{len(addresses) - 1} companions; a slot has room for {MOST}"
        raise Refused(what="read companions", subject=repr(unit), cause=cause, hint=_HINT)
    return addresses[0], tuple(addresses[1:])


def read_companions(environment: Mapping[str, str], resources: Iterable[str], pools: Pools[HostAddress]) -> Companions:
    """Return the companions per primary address; none for a resource without the variable.

    Refused: a text of another form, a primary that the resource's own variable does not hold, an address used twice.
    """
    found: Companions = {}
    used: Dict[HostAddress, str] = {address: pool.variable for pool in pools.by_variable.values() for address in pool.addresses}
    for resource in dict.fromkeys(resources):
        name = variable(COMPANIONS, resource)
        value = environment.get(name, "")
        with naming(name, value):
            units = [_parse_unit(unit) for unit in addresses_of(value)]
        for primary, companions in units:
            if primary not in pools.of(resource).addresses:
                raise _refuse(name, value, f"{primary} is not in {pools.of(resource).said}")
            if primary in found:
                raise _refuse(name, value, f"{primary} has companions twice")
            for address in companions:
                if address in used:
                    raise _refuse(name, value, f"{address} stands in {used[address]} too")
                used[address] = name
            found[primary] = companions
    return found

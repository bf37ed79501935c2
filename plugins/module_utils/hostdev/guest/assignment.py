"""Which device of the manifest gets which device of the host, as plain data for results, status and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Dict, List

from ..device.names import PREFIXES as VARIABLES
from ..device.names import variable
from ..vmi.instance import VirtualMachineInstance
from .building import alias_of, in_domain_order, kind_of
from .environment import EnvironmentSource
from .sources import entries_of, resolve


def assignments(vmi: VirtualMachineInstance, environment: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return one mapping per entry in the order of the domain: name, list, kind, resource, variable, alias, address, companions.

    Addresses are text as the kernel spells them, of USB devices BUS:DEVICE. Faults are those of domain.render.
    """
    return [
        {
            "name": entry.device.name,
            "list": entry.kind,
            "kind": kind_of(unit),
            "resource": entry.device.device_name,
            "variable": variable(VARIABLES[kind_of(unit)], entry.device.device_name),
            "alias": f"ua-{alias_of(entry, unit)}",
            "address": str(unit.primary),
            "companions": [str(one) for one in unit.companions],
        }
        for entry, unit in in_domain_order(resolve(entries_of(vmi.spec), [EnvironmentSource(environment)]))
    ]

"""Which device of the manifest gets which device of the host, as plain data for results, status and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Dict, List

from ..device.names import PREFIXES as VARIABLES
from ..device.names import variable
from ..vmi.instance import VirtualMachineInstance
from .hostdev import PREFIXES
from .sources import EnvironmentSource, entries_of, resolve


def assignments(vmi: VirtualMachineInstance, environment: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return one mapping per device in the order of the domain: name, list, resource, variable, alias, address, companions.

    Addresses are text as the kernel spells them. Faults are those of domain.render.
    """
    return [
        {
            "name": entry.device.name,
            "list": entry.kind,
            "resource": entry.device.device_name,
            "variable": variable(VARIABLES["pci"], entry.device.device_name),
            "alias": f"ua-{PREFIXES[entry.kind]}{entry.device.name}",
            "address": str(unit.primary),
            "companions": [str(one) for one in unit.companions],
        }
        for entry, unit in resolve(entries_of(vmi.spec), [EnvironmentSource(environment)])
    ]

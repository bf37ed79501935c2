"""All devices of the host with their places in the guest, and the controllers that these need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import List, Tuple

from ..device.faults import Absent
from ..vmi.spec import Spec
from .building import hostdevs, ports_needed
from .controllers import ROOT, ROOT_PORT, Controller
from .hostdev import Hostdev
from .placement import place_by_numa
from .settings import DomainSettings
from .sources import Source, entries_of, refuse_shared, resolve
from .sriov import sriov_hostdevs
from .topology import Topology

# whose machines have PCI Express buses that KubeVirt places devices on
_EXPRESS = ("", "amd64", "arm64")


@dataclass(frozen=True)
class Arrangement:
    """Hostdevs in the order of the domain, and controllers."""

    devices: Tuple[Hostdev, ...]
    controllers: Tuple[Controller, ...] = ()


def arrange(spec: Spec, sources: Sequence[Source], topology: Topology, settings: DomainSettings, *, no_hole: bool) -> Arrangement:
    """Return the devices of gpus, hostDevices and SR-IOV interfaces; Faults: those of sources, SR-IOV networks and placement.

    no_hole: the annotation that takes the 64-bit hole of the root complex away; for amd64 alone, as for KubeVirt.
    """
    resolved = resolve(entries_of(spec), sources)
    virtual = _virtual_functions(spec, settings)
    taken = {one.guest.address.bus for one in virtual if one.guest}
    # bus 0 is the root complex; a root port of our own per device of several functions comes first
    buses = tuple(islice((bus for bus in count(1) if bus not in taken), ports_needed(resolved)))
    devices = [*hostdevs(resolved, buses, screen=settings.screen), *virtual]
    refuse_shared([(one.alias, one.source) for one in devices])
    hole = no_hole and spec.architecture in ("", "amd64")
    placed = Arrangement(tuple(devices))
    if settings.by_numa and spec.domain.cpu.dedicated and spec.architecture in _EXPRESS:
        strict, highest = spec.domain.cpu.guest_mapping, max((0, *buses, *taken))
        moved = place_by_numa(devices, buses, highest, topology.as_numa(), settings.host.numa, strict=strict)
        placed = Arrangement(moved.devices, moved.controllers)
    used = {one.guest.address.bus for one in placed.devices if one.guest}
    ports = [Controller(bus, ROOT_PORT) for bus in buses if bus in used]
    root = [Controller(0, ROOT, hole_kib=0 if hole else None)] if hole or ports else []
    return Arrangement(placed.devices, (*root, *ports, *placed.controllers))


def _virtual_functions(spec: Spec, settings: DomainSettings) -> List[Hostdev]:
    asked = [(f"spec.domain.devices.interfaces[{index}]", interface) for index, interface in spec.sriov]
    if asked and settings.networks is None:
        raise Absent(
            what="find the virtual functions of the guest's networks",
            subject=asked[0][0],
            cause="which function the network has is known in the launcher's pod alone",
            hint="ask for the function in hostDevices",
        )
    return sriov_hostdevs(asked, settings.networks) if settings.networks is not None else []

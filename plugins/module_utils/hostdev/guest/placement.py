"""Where PCI devices stand in the guest, where libvirt does not choose: behind an expander bus of their NUMA node.

KubeVirt's layout and numbers (pkg/virt-launcher/virtwrap/converter/pci-placement.go). Beyond it: a device of several
functions moves as one, and a bus takes no more than the 32 root ports that it has slots for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Tuple

from ..device.address import Address
from ..device.faults import Refused
from .controllers import EXPANDER, ROOT_PORT, Controller
from .hostdev import GuestPlace, Hostdev
from .numa import GuestNuma, HostNuma, locate

_HIGHEST_BUS = 255
_SLOTS = 32
_WHAT = "place the PCI devices by NUMA node"
_FEWER = "give the guest fewer devices"
_NO_NODE = "look at numa_node of the device below /sys/bus/pci/devices, and at the guest's NUMA cells"


@dataclass(frozen=True)
class Placed:
    """Devices with their places, the controllers that these need, and what stood in the way of the devices that have none."""

    devices: Tuple[Hostdev, ...]
    controllers: Tuple[Controller, ...] = ()
    warnings: Tuple[str, ...] = ()


@dataclass(frozen=True)
class _Group:
    """Devices, by their index, that stand on one root port; the first is function 0 and says where they belong."""

    indexes: Tuple[int, ...]
    source: Address


def place_by_numa(
    devices: Sequence[Hostdev], ports: Collection[int], highest: int, guest: GuestNuma, host: HostNuma, *, strict: bool
) -> Placed:
    """Return the devices with places behind expander buses, one bus per node of the guest, one root port per device.

    ports: buses of root ports of ours, from which devices may move. highest: the highest index of any controller. A device
    with a guest's address of the user's, or without a node, stays where it is; strict refuses that. Refused as well when
    the buses' numbers do not suffice.
    """
    groups, warnings = _groups(devices, ports)
    located = locate([group.source for group in groups], guest, host)
    general = [one.reason for one in located.warnings if one.device is None]
    lost = [f"{one.source} cannot be placed: {located.reasons(one.source)}" for one in groups if one.source not in located.cells]
    warnings = [*warnings, *general, *lost]
    if strict and warnings:
        raise Refused(what=_WHAT, subject="numa.guestMappingPassthrough is strict", cause="; ".join(warnings), hint=_NO_NODE)
    layout = _Layout(highest)
    by_cell: Dict[int, List[_Group]] = {}
    for group in sorted(groups, key=lambda one: one.source):
        if group.source in located.cells:
            by_cell.setdefault(located.cells[group.source], []).append(group)
    moved = list(devices)
    for cell in sorted(by_cell):
        for start in range(0, len(by_cell[cell]), _SLOTS):
            layout.fill(cell, by_cell[cell][start : start + _SLOTS], moved)
    return Placed(tuple(moved), tuple(layout.controllers), tuple(warnings))


def _groups(devices: Sequence[Hostdev], ports: Collection[int]) -> Tuple[List[_Group], List[str]]:
    groups: List[_Group] = []
    on_port: Dict[int, int] = {}
    warnings: List[str] = []
    for index, device in enumerate(devices):
        if not isinstance(device.source, Address):
            continue
        bus = device.guest.address.bus if device.guest else 0
        if bus in on_port:
            first = groups[on_port[bus]]
            groups[on_port[bus]] = _Group((*first.indexes, index), first.source)
        elif device.guest is None or bus in ports:
            on_port.update({bus: len(groups)} if device.guest else {})
            groups.append(_Group((index,), device.source))
        else:
            warnings.append(f"{device.source} already has a guest PCI address")
    return groups, warnings


class _Layout:
    """Controllers in the making; numbers of buses go down from 255 while indexes of controllers go up."""

    def __init__(self, highest: int) -> None:
        self.controllers: List[Controller] = []
        self._index = highest
        self._lowest = _HIGHEST_BUS

    def fill(self, cell: int, groups: Sequence[_Group], devices: List[Hostdev]) -> None:
        """Add an expander bus with a root port per group, and move the groups' devices there."""
        position = len(self.controllers)
        bus = self._add(EXPANDER, None, cell)
        for slot, group in enumerate(groups):
            if self._index >= self._lowest - 1:
                at = f"current controller index {self._index}, last assigned expander bus number {self._lowest}"
                raise Refused(
                    what=_WHAT, subject=str(group.source), cause=f"insufficient bus numbers: {at}", hint="give the guest fewer devices"
                )
            port = self._add(ROOT_PORT, GuestPlace(Address(0, bus, slot, 0)), None)
            for index in group.indexes:
                devices[index] = _moved(devices[index], port)
        self._lowest = _HIGHEST_BUS - len(self.controllers) + 1
        self.controllers[position] = replace(self.controllers[position], bus_number=self._lowest)

    def _add(self, model: str, place: Optional[GuestPlace], node: Optional[int]) -> int:
        self._index += 1
        self.controllers.append(Controller(self._index, model, place=place, node=node))
        return self._index


def _moved(device: Hostdev, port: int) -> Hostdev:
    old = device.guest
    function = old.address.function if old else 0
    return replace(device, guest=GuestPlace(Address(0, port, 0, function), old.multifunction if old else False))

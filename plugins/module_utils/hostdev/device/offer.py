"""What a node can hand out, whatever kind of device it is: values that readers make and the kubelet's servers serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional

from .inventory import HEALTHY, UNHEALTHY, Skipped
from .usb import UsbDevice

NO_DEVICE_NODE, GONE, NO_GRANT = "no-device-node", "gone", "no-grant-folder"
LINK, LINE, NAMES = "link", "line", "names"


class Proof(NamedTuple):
    """One fact that has to hold for an offer to be true still.

    form: "link": expected is the last part of the link's target; "line": a line of the file; "names": what stands in the
    folder, sorted and joined by spaces.
    """

    path: str
    expected: str
    form: str = LINK


@dataclass(frozen=True)
class Offer:
    """One unit of one resource as this node can hand it out now.

    id: what the kubelet knows it by. name: what people know it by (a PCI address, an mdev's uuid, USB ports, a node).
    values: its entries in the resource's variable. companions: functions that go to the guest beside the one value.
    required: device nodes without which it is unhealthy; optional: nodes that are handed out where they exist;
    present: those of both that exist, and of those that come with any unit of its kind. upstream: the buses and bridges above
    it, from the root down, itself last. members: the functions of its IOMMU group. permissions: of the nodes in the
    container's device cgroup. plugged: the USB devices that it is made of. trouble: why it is unhealthy, apart from missing
    nodes; trouble_code: the same as one word. proofs: what is looked at again before it is handed out.
    """

    kind: str
    resource: str
    id: str
    name: str
    values: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    numa_node: Optional[int] = None
    card: str = ""
    upstream: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    permissions: str = "mrw"
    plugged: tuple[UsbDevice, ...] = ()
    trouble: str = ""
    trouble_code: str = ""
    proofs: tuple[Proof, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the device nodes that a container is given, required ones first."""
        return tuple(node for node in (*self.required, *self.optional) if node in self.present)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the required nodes that do not exist."""
        return tuple(node for node in self.required if node not in self.present)

    @property
    def health(self) -> str:
        """Return "Healthy" or "Unhealthy" (device plugin API v1beta1)."""
        return UNHEALTHY if self.reason else HEALTHY

    @property
    def code(self) -> str:
        """Return the reason as one word, one of few; empty when it is healthy."""
        return self.trouble_code if self.trouble else NO_DEVICE_NODE if self.missing else ""

    @property
    def reason(self) -> str:
        """Return why it is unhealthy; empty when it is healthy."""
        if self.trouble:
            return self.trouble
        return f"{', '.join(self.missing)} does not exist" if self.missing else ""


@dataclass(frozen=True)
class Found:
    """One look at a machine: its offers in the order of the declaration, and the declared devices that are none.

    faults: of the kinds that could not be looked at, each as text; their offers are those of the look before.
    """

    offers: tuple[Offer, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    faults: tuple[str, ...] = ()

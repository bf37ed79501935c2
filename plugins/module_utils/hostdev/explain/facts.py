"""What one node knows of the declared devices: read once, for the chains that are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..device.address import Address
from ..device.declaration import PCI, Declaration
from ..device.faults import Fault
from ..device.inventory import Skipped
from ..kernel.iommu import Verdict, read_iommu
from ..kernel.pci import read_function
from ..kernel.pending import NextBoot, read_next_boot
from ..kube.kinds import find_skipped
from ..kube.ledger import PLUGIN_FOLDER, Ledger, read_ledger
from ..kube.podresources import KUBELET_ROOT
from ..root import Root
from .nearest import Unmatched, read_unmatched
from .seen import Seen, read_seen
from .state import read_state


@dataclass(frozen=True)
class Where:
    """Where others keep what is read: the kubelet's root, its plugin folder, and the command that reaches its containerd."""

    kubelet_root: str = KUBELET_ROOT
    plugin_folder: str = PLUGIN_FOLDER
    ctr: Sequence[str] = ()


@dataclass(frozen=True)
class NodeFacts:
    """What one node knows.

    seen: the units. skipped: declared devices that are none. unmatched: entries that mean no device. plugin: the plugin's
    state file, None when it does not run. ledger: what the kubelet says, None when it cannot be asked; ledger_fault says why.
    image: whether the launcher image is there, None when nobody asked. boot: what waits for the next boot.
    """

    seen: tuple[Seen, ...]
    skipped: tuple[Skipped, ...]
    verdict: Verdict
    unmatched: tuple[Unmatched, ...] = ()
    plugin: Optional[Mapping[str, Any]] = None
    ledger: Optional[Ledger] = None
    ledger_fault: str = ""
    image_name: str = ""
    image: Optional[bool] = None
    boot: NextBoot = field(default_factory=NextBoot)


def read_facts(root: Root, declaration: Declaration, image: str = "", where: Optional[Where] = None) -> NodeFacts:
    """Return what this node knows now; a kubelet that cannot be asked is a fact, not an error."""
    places = where or Where()
    boot, plugin = read_next_boot(root), read_state(root)
    ledger, fault = ask_ledger(root, places)
    seen = read_seen(root, declaration, plugin["units"] if plugin else ())
    primaries = [read_function(root, Address.parse(one.name)) for one in seen if one.kind == PCI and one.evidence]
    return NodeFacts(
        seen=seen,
        skipped=find_skipped(root, declaration),
        verdict=read_iommu(root, primaries, boot.words),
        unmatched=read_unmatched(root, declaration),
        plugin=plugin,
        ledger=ledger,
        ledger_fault=fault,
        image_name=image,
        image=_has_image(root, image, places.ctr) if image else None,
        boot=boot,
    )


def ask_ledger(root: Root, where: Where) -> tuple[Optional[Ledger], str]:
    """Return the ledger, or none and why the kubelet cannot be asked."""
    try:
        return read_ledger(root, where.kubelet_root, where.plugin_folder), ""
    except Fault as fault:
        return None, f"{fault.subject}: {fault.cause}"


def _has_image(root: Root, image: str, ctr: Sequence[str]) -> bool:
    done = root.run([*ctr, "images", "ls", "--quiet", f"name=={image}"])
    return done.code == 0 and image in done.out.split()

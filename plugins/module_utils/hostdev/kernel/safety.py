"""What must never be taken away from the host: one table of rows, each of which may refuse a function, with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ..device.address import Address
from ..device.pci import Function
from ..root import Root, entries, read_link_name, read_text
from .claims import Claim, Member
from .pci import DEVICES
from .usage import Uses, read_uses

HUNG = "/run/vfio-passthrough/hung"
HUNG_NOW = "its unbind did not return in this boot"
_NVSWITCH = ("10de", "0680")
# behind Intel VMD the kernel makes PCI domains that no firmware has
_LAST_FIRMWARE_DOMAIN = 0xFFFF


@dataclass(frozen=True)
class Refusal:
    """Why a function may not be taken: reason is a word of the table, evidence what was seen, hint what to do."""

    address: str
    reason: str
    evidence: str
    hint: str
    resource: str = ""
    position: str = ""

    def text(self) -> str:
        """Return one line for messages."""
        return f"{self.address}: {self.reason}: {self.evidence}. {self.hint}"

    def as_dict(self) -> dict[str, str]:
        """Return the refusal for JSON output."""
        return {
            "address": self.address,
            "reason": self.reason,
            "evidence": self.evidence,
            "hint": self.hint,
            "resource": self.resource,
            "position": self.position,
        }


@dataclass(frozen=True)
class Subject:
    """One function as the rows see it. parent_driver: the driver of a virtual function's PF, None when it is no VF."""

    function: Function
    uses: Uses
    allow: frozenset[str] = frozenset()
    parent_driver: Optional[str] = None
    dom0: bool = False
    groups_exist: bool = True


@dataclass(frozen=True)
class Scene:
    """All that the rows need, read once: the subjects by address and the uses of strangers in the claimed groups."""

    subjects: Mapping[Address, Subject]
    strangers: Mapping[Address, Uses]


def read_scene(root: Root, claims: Sequence[Claim], management: Iterable[str] = ()) -> Scene:
    """Return how the functions of the claims, and the strangers in their groups, are in use."""
    members = [(claim, member.function) for claim in claims for member in claim.members]
    strangers = {one.address: one for claim in claims for one in claim.strangers}
    uses = read_uses(root, [function for _claim, function in members] + list(strangers.values()), management)
    dom0 = "control_d" in (read_text(root.proc("xen", "capabilities")) or "")
    exist = any(name.isdigit() for name in entries(root.sysfs("kernel", "iommu_groups")))
    subjects = {
        function.address: Subject(function, uses[function.address], claim.allow, _parent_driver(root, function), dom0, exist)
        for claim, function in members
    }
    return Scene(subjects, {address: uses[address] for address in strangers})


def hung_now(root: Root) -> frozenset[str]:
    """Return the functions whose unbind did not return in this boot: nothing may touch them before the next."""
    return frozenset(name for name in entries(root.at(HUNG)) if read_text(root.at(HUNG) / name) == boot_id(root))


def boot_id(root: Root) -> str:
    """Return the kernel's random name of this boot, empty where there is none."""
    return read_text(root.proc("sys", "kernel", "random", "boot_id")) or ""


def refusals(claims: Sequence[Claim], scene: Scene) -> tuple[Refusal, ...]:
    """Return every refusal of every claim, in the order of claims, functions and rows; pure."""
    found: list[Refusal] = []
    for claim in claims:
        found += [_of_stranger(claim, one, scene.strangers[one.address]) for one in claim.strangers]
        for member in claim.members:
            found += _of_member(claim, member, scene.subjects[member.address])
    return tuple(found)


def warnings(claims: Sequence[Claim]) -> tuple[str, ...]:
    """Return what does not forbid binding but may hurt later."""
    return tuple(
        f"{claim.primary.address}: no way to reset it is known to the kernel: a second VM may fail to start with it"
        for claim in claims
        if not claim.primary.reset_methods
    )


def _of_member(claim: Claim, member: Member, subject: Subject) -> list[Refusal]:
    found = [(reason, check(subject), hint) for reason, check, hint in _ROWS]
    where = str(member.address)
    return [
        Refusal(where, reason, f"{member.part} {subject.function.label()}: {evidence}", hint, claim.resource, claim.position)
        for reason, evidence, hint in found
        if evidence
    ]


def _of_stranger(claim: Claim, stranger: Function, uses: Uses) -> Refusal:
    used = [*uses.system, *uses.mounts, *uses.holders, *uses.management, *uses.default_route, *uses.network, *uses.processes]
    state = f"in use: {'; '.join(used)}" if used else "not in use as far as can be seen"
    place = f"shares IOMMU group {claim.group} with {claim.primary.address} and is neither selected nor a companion"
    evidence = f"{stranger.label()} {place}; {state}"
    hint = (
        "Move the card to another slot, best one wired to the CPU, so that it has a group of its own;"
        " or, if the whole group may leave the host, name it with allow: [foreign_members]"
    )
    return Refusal(str(stranger.address), "foreign member", evidence, hint, claim.resource, claim.position)


def _parent_driver(root: Root, function: Function) -> Optional[str]:
    return (read_link_name(root.at(DEVICES) / str(function.physfn) / "driver") or "") if function.physfn else None


def _bridge(subject: Subject) -> str:
    function = subject.function
    switch = (function.vendor, function.class_code[:4]) == _NVSWITCH
    return "" if switch or not function.class_code.startswith("06") else f"it is a bridge (class {function.class_code[:4]})"


def _group(subject: Subject) -> str:
    return "no iommu_group although the machine has groups" if subject.groups_exist and not subject.function.iommu_group else ""


def _domain(subject: Subject) -> str:
    return f"PCI domain {subject.function.address.domain:x}" if subject.function.address.domain > _LAST_FIRMWARE_DOMAIN else ""


def _process(subject: Subject) -> str:
    # on a VFIO driver an open node is the guest that is meant to have it
    return "" if subject.function.is_usable else _join(subject.uses.processes)


def _instances(subject: Subject) -> str:
    profile = () if subject.function.vgpu_type in ("", "0") else (f"vGPU profile {subject.function.vgpu_type}",)
    return "" if subject.function.holds_vgpu else _join((*subject.uses.instances, *profile))


def _parent(subject: Subject) -> str:
    return f"its physical function {subject.function.physfn} has no driver" if subject.parent_driver == "" else ""


def _unless(word: str, allow: frozenset[str], evidence: Sequence[str]) -> str:
    return "" if word in allow else _join(evidence)


def _join(texts: Sequence[str]) -> str:
    return "; ".join(texts)


_NOT_THIS = "Narrow the selector, for example by address"
_CONSOLE = "Select another card, or consent with allow: [console] (the host then has no local display; keep a serial or BMC console)"

Check = Callable[[Subject], str]
_ROWS: tuple[tuple[str, Check, str], ...] = (
    ("Xen dom0", lambda one: "this host is a Xen control domain" if one.dom0 else "", "Xen passes devices through by its own tools"),
    ("bridge", _bridge, f"Bridges stay with the host. {_NOT_THIS}"),
    ("behind VMD", _domain, "Switch VMD (RAID mode) off in the firmware: devices behind it cannot be given away one by one"),
    ("no IOMMU group", _group, "The IOMMU does not cover this device; see the IOMMU verdict"),
    ("system disk", lambda one: _join(one.uses.system), f"The host runs from it; this is never waived. {_NOT_THIS}"),
    ("mounted", lambda one: _join(one.uses.mounts), "Unmount it first, and take it out of /etc/fstab"),
    ("held by storage", lambda one: _join(one.uses.holders), "Take it out of the volume group, array or pool first"),
    ("management NIC", lambda one: _join(one.uses.management), f"This run would cut itself off; this is never waived. {_NOT_THIS}"),
    (
        "default route",
        lambda one: _unless("nic", one.allow, one.uses.default_route),
        f"The host would lose its network. {_NOT_THIS}, or consent with allow: [nic]",
    ),
    ("NIC in use", lambda one: _unless("nic", one.allow, one.uses.network), "Take it out of use first, or consent with allow: [nic]"),
    (
        "boot console",
        lambda one: _unless("console", one.allow, ("it is the boot display of the host (boot_vga)",) if one.function.boot_vga else ()),
        _CONSOLE,
    ),
    ("in use", _process, "Stop what uses it (pods, display manager, persistence daemon), then run again"),
    ("instances exist", _instances, "Remove its mediated devices or vGPUs first"),
    (
        "has virtual functions",
        lambda one: f"{one.function.sriov_active} virtual functions are enabled" if one.function.sriov_active else "",
        "Select its virtual functions, or write 0 to its sriov_numvfs first",
    ),
    ("physical function without driver", _parent, "Bind the physical function to its driver first"),
)

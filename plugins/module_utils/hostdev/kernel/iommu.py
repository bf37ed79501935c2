"""The IOMMU verdict: which kind of host is this, is translation active, and what would make it so.

Neither a log line nor the command line nor the groups folder tells: with `iommu=off` an Intel host still logs
"IOMMU enabled", and /sys/kernel/iommu_groups exists on every kernel. Entries in /sys/class/iommu and numbered groups do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from ..device.faults import Fault
from ..device.pci import Function
from ..root import Root, entries, read_text
from .cmdline import OFF_KEYS, Word, kernel_part, parse, switches_off
from .platforms import PLATFORMS, vendor_of

OK, OFF_BY_ARG, OFF_BY_KERNEL_DEFAULT = "IOMMU_OK", "IOMMU_OFF_BY_ARG", "IOMMU_OFF_BY_KERNEL_DEFAULT"
PENDING_REBOOT, FIRMWARE, NESTED = "IOMMU_OFF_PENDING_REBOOT", "IOMMU_FIRMWARE", "IOMMU_NESTED"
NO_GROUP, INIT_FAILED, NO_REMAP = "IOMMU_NO_GROUP_FOR_DEVICE", "IOMMU_INIT_FAILED", "IOMMU_NO_INTR_REMAP"
GROUPS_CHANGED = "GROUPS_CHANGED"

_ACTIVE = (OK, NO_GROUP, NO_REMAP, GROUPS_CHANGED)
_CURABLE = (OFF_BY_ARG, OFF_BY_KERNEL_DEFAULT, PENDING_REBOOT)
_SUPERFLUOUS = {"intel": ("intel_iommu=on",), "amd": ("amd_iommu=on", "intel_iommu=on")}


@dataclass(frozen=True)
class IommuState:
    """What the machine shows about its IOMMU.

    vendor: whose IOMMU this is, "intel", "amd", "arm" or "". tables: DMA remapping tables of ACPI by name. instances: /sys/class/iommu.
    groups: how many are numbered. arguments: the running command line's words. next_arguments: those of the next boot,
    None when not known. interrupt_remapping: None where it cannot be told. kernel_default_on: None likewise.
    """

    vendor: str = ""
    tables: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    groups: int = 0
    arguments: tuple[str, ...] = ()
    next_arguments: Optional[tuple[str, ...]] = None
    virtual: bool = False
    interrupt_remapping: Optional[bool] = None
    kernel_default_on: Optional[bool] = None
    log: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Return whether translation is on: instances and groups, both."""
        return bool(self.instances) and self.groups > 0


@dataclass(frozen=True)
class Verdict:
    """A code of the table below, what was seen, what to do. subjects: the addresses it is about, none for the host."""

    code: str
    evidence: tuple[str, ...]
    advice: str
    subjects: tuple[str, ...] = field(default=())

    @property
    def active(self) -> bool:
        """Return whether devices can be bound to vfio-pci at all on this host now."""
        return self.code in _ACTIVE

    @property
    def curable(self) -> bool:
        """Return whether boot arguments and a reboot make the IOMMU active; firmware and hypervisors need other hands."""
        return self.code in _CURABLE

    def as_dict(self) -> dict[str, object]:
        """Return the verdict for JSON output."""
        return {
            "code": self.code,
            "active": self.active,
            "curable": self.curable,
            "evidence": list(self.evidence),
            "advice": self.advice,
            "subjects": list(self.subjects),
        }


def read_iommu(
    root: Root,
    targets: Sequence[Function] = (),
    next_arguments: Optional[Sequence[str]] = None,
    layout: Optional[Mapping[str, str]] = None,
) -> Verdict:
    """Return the verdict for the functions meant; next_arguments are the next boot's words, layout the groups planned against."""
    return judge(read_state(root, next_arguments), targets, layout or {})


def read_state(root: Root, next_arguments: Optional[Sequence[str]] = None) -> IommuState:
    """Return what the machine shows; the kernel log is asked for only when the IOMMU is not active."""
    cpu = read_text(root.proc("cpuinfo")) or ""
    instances = tuple(entries(root.sysfs("class", "iommu")))
    groups = sum(1 for name in entries(root.sysfs("kernel", "iommu_groups")) if name.isdigit())
    tables = tuple(name for name in entries(root.sysfs("firmware", "acpi", "tables")) if name in ("DMAR", "IVRS", "IORT", "VIOT"))
    return IommuState(
        vendor=vendor_of(cpu, tables),
        tables=tables,
        instances=instances,
        groups=groups,
        arguments=tuple(word.text for word in kernel_part(parse(read_text(root.proc("cmdline")) or ""))),
        next_arguments=None if next_arguments is None else tuple(next_arguments),
        virtual=_is_virtual(root, cpu),
        interrupt_remapping=_remaps(root),
        kernel_default_on=_default_on(root),
        log=() if instances and groups else _log(root),
    )


def judge(state: IommuState, targets: Sequence[Function] = (), layout: Optional[Mapping[str, str]] = None) -> Verdict:
    """Return the first row of the table that fits; pure."""
    for code, fits in _ROWS:
        found = fits(state, targets, layout or {})
        if found:
            evidence, advice, subjects = found
            return Verdict(code, (_summary(state), *evidence), advice, subjects)
    leftovers = [word for word in state.arguments if word in _SUPERFLUOUS.get(state.vendor, ())]
    advice = f"nothing to do; superfluous here: {', '.join(leftovers)}" if leftovers else "nothing to do"
    return Verdict(OK, (_summary(state),), advice)


Found = Optional[tuple[tuple[str, ...], str, tuple[str, ...]]]


def _switches(arguments: Sequence[str]) -> list[Word]:
    return [word for word in (Word(text, text) for text in arguments) if word.key in OFF_KEYS]


def _offs(arguments: Sequence[str]) -> list[str]:
    return [word.text for word in _switches(arguments) if switches_off(word)]


def _has_on(arguments: Sequence[str]) -> bool:
    """Tell whether a line asks for Intel's IOMMU: options such as igfx_off or sm_on alone leave it as the kernel was built."""
    return any(word.key == PLATFORMS["intel"].key and "on" in word.options for word in _switches(arguments))


def _pending(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    following = state.next_arguments
    if state.active or following is None or not state.tables or _offs(following):
        return None
    gone = [word for word in _offs(state.arguments) if word not in following]
    asked = state.vendor == "intel" and _has_on(following)
    # an Intel kernel that was built with the IOMMU off needs the word too
    suffices = asked or state.vendor != "intel" or state.kernel_default_on is not False
    if not (gone and suffices) and not (asked and not _has_on(state.arguments)):
        return None
    new = [word.text for word in _switches(following) if word.text not in state.arguments]
    changes = [f"the next boot has no {word}" for word in gone] + [f"the next boot has {word}" for word in new]
    return tuple(changes), "reboot; nothing else is needed", ()


def _off_by_argument(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    words = _offs(state.arguments)
    if state.active or not words or not state.tables:
        return None
    left = words if state.next_arguments is None else [word for word in words if word in state.next_arguments]
    parts = [f"remove {' and '.join(left)} from the boot loader's arguments (adding words after it does not help)"] if left else []
    parts += ["add intel_iommu=on to the boot loader's arguments"] if not left and state.vendor == "intel" else []
    return tuple(f"the command line has {word}" for word in words), " and ".join([*parts, "reboot"]), ()


def _off_by_default(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    if state.active or state.vendor != "intel" or "DMAR" not in state.tables or _has_on(state.arguments):
        return None
    others = [word.text for word in _switches(state.arguments) if word.key == PLATFORMS["intel"].key]
    given = f"{' and '.join(others)} alone does not switch it on" if others else "no intel_iommu argument"
    built = {True: "the kernel's own default is on", False: "the kernel was built with the IOMMU off", None: "no word about its default"}
    return (given, built[state.kernel_default_on]), "add intel_iommu=on to the boot loader's arguments and reboot", ()


def _init_failed(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    if state.active or not state.tables:
        return None
    advice = "the kernel's messages are above; a firmware update is the usual mend"
    if state.vendor == "amd":
        advice += "; amd_iommu=force_enable is worth one try"
    return state.log or ("the kernel log has no DMAR or AMD-Vi line",), advice, ()


def _nested(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    if state.active or not state.virtual:
        return None
    advice = (
        "this host is itself a VM: its hypervisor has to give it a virtual IOMMU (QEMU: -device intel-iommu,intremap=on,"
        "caching-mode=on with kernel-irqchip=split; libvirt: the <iommu> device); no argument and no reboot of this host helps"
    )
    return ("runs under a hypervisor", "the firmware gives no DMA remapping table"), advice, ()


def _firmware(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    if state.active:
        return None
    platform = PLATFORMS.get(state.vendor)
    names = platform.firmware if platform else "look for its IOMMU setting"
    advice = f"switch the IOMMU on in the firmware's set-up ({names}); no argument and no reboot alone helps"
    return (f"the firmware gives no {platform.table if platform else 'DMA remapping'} table",), advice, ()


def _no_group(_state: IommuState, targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    bare = [function for function in targets if not function.iommu_group]
    if not bare:
        return None
    hints = ["some devices are not covered: integrated GPUs (kernels built with their translation off), what is behind VMD, platform buses"]
    if any(function.is_display and function.address.bus == 0 for function in bare):
        hints.append("for this integrated GPU intel_iommu=on (without igfx_off) may bring it in")
    return tuple(f"no iommu_group: {function.label()}" for function in bare), "; ".join(hints), tuple(str(one.address) for one in bare)


def _changed(_state: IommuState, targets: Sequence[Function], layout: Mapping[str, str]) -> Found:
    moved = [one for one in targets if layout.get(str(one.address), one.iommu_group) != one.iommu_group]
    if not moved:
        return None
    evidence = tuple(f"{one.address} was in group {layout[str(one.address)]}, is in {one.iommu_group or 'none'}" for one in moved)
    advice = "a kernel or firmware change moved devices between groups: the plan is made anew from the present groups"
    return evidence, advice, tuple(str(one.address) for one in moved)


def _no_remapping(state: IommuState, _targets: Sequence[Function], _layout: Mapping[str, str]) -> Found:
    if state.interrupt_remapping is not False:
        return None
    advice = (
        "VMs will fail to start with EPERM: switch interrupt remapping on (firmware x2APIC/VT-d settings; for a VM host intremap=on);"
        " vfio_iommu_type1.allow_unsafe_interrupts=1 lets guests inject interrupts and is for test machines only"
    )
    return ("no IR- line in /proc/interrupts",), advice, ()


Row = Callable[[IommuState, Sequence[Function], Mapping[str, str]], Found]

# the first that fits is the verdict; the rows for a host whose IOMMU is not active come first
_ROWS: tuple[tuple[str, Row], ...] = (
    (PENDING_REBOOT, _pending),
    (OFF_BY_ARG, _off_by_argument),
    (OFF_BY_KERNEL_DEFAULT, _off_by_default),
    (INIT_FAILED, _init_failed),
    (NESTED, _nested),
    (FIRMWARE, _firmware),
    (NO_GROUP, _no_group),
    (GROUPS_CHANGED, _changed),
    (NO_REMAP, _no_remapping),
)


def _summary(state: IommuState) -> str:
    tables = "+".join(state.tables) or "none"
    return f"IOMMU of {state.vendor or 'unknown'}; ACPI tables: {tables}; IOMMU instances: {len(state.instances)}; groups: {state.groups}"


def _is_virtual(root: Root, cpu: str) -> bool:
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", cpu, re.MULTILINE)
    return bool(flags) or bool(read_text(root.sysfs("hypervisor", "type")))


def _remaps(root: Root) -> Optional[bool]:
    # x86 names its remapped chips IR-IO-APIC, IR-PCI-MSI; other architectures do not
    text = read_text(root.proc("interrupts"))
    if not text or ("APIC" not in text and "PCI-MSI" not in text):
        return None
    return " IR-" in text


def _default_on(root: Root) -> Optional[bool]:
    release = read_text(root.proc("sys", "kernel", "osrelease")) or ""
    config = read_text(root.at(f"/boot/config-{release}"))
    if config is None:
        return None
    return any(f"CONFIG_INTEL_IOMMU_DEFAULT_ON{tail}=y" in config for tail in ("", "_INTGPU_OFF"))


def _log(root: Root) -> tuple[str, ...]:
    if not entries(root.sysfs("firmware", "acpi", "tables")):
        return ()
    try:
        done = root.run(["dmesg"], timeout=30)
    except Fault:
        return ()
    words = ("DMAR", "AMD-Vi", "IOMMU", "arm-smmu")
    return tuple([line for line in done.out.splitlines() if any(word in line for word in words)][-8:]) if done.code == 0 else ()

"""Boot-safe persistence: which of our files are missing or outdated, and whether an initramfs holds an old copy of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..device.faults import Fault
from ..device.pci import VFIO_PCI, Function
from ..root import Root, entries, read_text, remove_file, write_file
from .boot_files import HELPER, MODULES, RULES, STATE, UNIT, UNIT_NAME, WANTS, OwnFile, boot_files, early_script
from .initramfs import TOOLS, Image, Tool, builtin_modules, find_tool, keep_listings, modules_of, read_images, regenerate

# the wants link goes before the unit that it points to
PLACES = (MODULES, RULES, HELPER, WANTS, UNIT, *(tool.script for tool in TOOLS))
RELEASED = f"{STATE}/released"
BOOTED = f"{STATE}/booted"


@dataclass(frozen=True)
class FileChange:
    """One file of ours that has to change; before and after are None where it is absent."""

    path: str
    before: Optional[str]
    after: Optional[OwnFile]

    def as_diff(self) -> dict[str, str]:
        """Return the change as Ansible shows diffs."""
        return {
            "before_header": self.path,
            "after_header": self.path,
            "before": self.before or "",
            "after": (self.after.text if self.after else ""),
        }


@dataclass(frozen=True)
class Persistence:
    """The plan: file changes, the generator to run (None when no image has to change), and words for people."""

    changes: tuple[FileChange, ...]
    regenerate: Optional[Tool] = None
    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether all is as it should be."""
        return not self.changes and self.regenerate is None

    def diffs(self) -> list[dict[str, Any]]:
        """Return the plan as Ansible shows diffs."""
        made = {"before_header": "initramfs", "after_header": "initramfs", "before": "", "after": "made anew\n"}
        return [change.as_diff() for change in self.changes] + ([made] if self.regenerate else [])


def plan_persistence(root: Root, functions: Sequence[Function]) -> Persistence:
    """Return what has to change so that exactly these functions are bound at boot; with none, so that nothing of ours is left."""
    tool = find_tool(root)
    images = read_images(root, tool) if tool else ()
    natives = {str(one.address): _natives(root, one) for one in functions}
    packed = frozenset[str]().union(*(image.modules for image in images))
    early = [one for one in functions if natives[str(one.address)] & packed]
    wanted = list(boot_files(functions))
    if tool and early:
        wanted.append(early_script(tool.script, functions))
    changes = tuple(_changes(root, wanted))
    stale = tool if tool and any(_is_stale(root, tool, image, wanted, changes) for image in images) else None
    return Persistence(changes, stale, tuple(_notes(root, functions, natives, tool)), images)


def apply_persistence(root: Root, plan: Persistence) -> None:
    """Write and delete the files, tell udev and systemd, make the initramfs anew."""
    if any(change.path == UNIT and change.after is None for change in plan.changes):
        # a unit that stays active after its file went keeps marks below /run/systemd
        _tell(root, ["systemctl", "stop", UNIT_NAME])
    for change in plan.changes:
        _apply(root, change)
    touched = {change.path for change in plan.changes}
    if touched & {UNIT, WANTS}:
        _tell(root, ["systemctl", "daemon-reload"])
    if RULES in touched:
        _tell(root, ["udevadm", "control", "--reload"])
    if plan.regenerate:
        regenerate(root, plan.regenerate)
    elif plan.images:
        keep_listings(root, plan.images)


def mark_booted(root: Root) -> None:
    """Say that the boot phase is over, so that a replayed udev event takes nothing from a driver any more."""
    if not root.at(BOOTED).exists():
        write_file(root.at(BOOTED), "")


def mark_released(root: Root, addresses: Iterable[str], released: bool) -> None:
    """Set or take away the flags that keep the rescue step off functions that were given back."""
    for address in addresses:
        place = root.at(RELEASED) / address
        if released:
            write_file(place, "")
        else:
            remove_file(place)


def forget_run_state(root: Root) -> None:
    """Delete our files below /run, but for marks of unbinds that hung."""
    for name in entries(root.at(RELEASED)):
        remove_file(root.at(RELEASED) / name)
    for place in (BOOTED, f"{STATE}/initramfs.json"):
        remove_file(root.at(place))
    for folder in (RELEASED, f"{STATE}/hung", STATE):
        _remove_empty(root, folder)


def _natives(root: Root, function: Function) -> frozenset[str]:
    return modules_of(root, function.modalias) - {VFIO_PCI.replace("-", "_")}


def _changes(root: Root, wanted: Sequence[OwnFile]) -> Iterable[FileChange]:
    by_path = {one.path: one for one in wanted}
    for path in PLACES:
        before, after = _now(root, path), by_path.get(path)
        if (before is None) != (after is None) or (after is not None and before != _comparable(after)):
            yield FileChange(path, before, after)


def _now(root: Root, path: str) -> Optional[str]:
    place = root.at(path)
    if place.is_symlink():
        return os.readlink(place)
    text = read_text(place)
    return None if text is None else text + "\n"


def _comparable(file: OwnFile) -> str:
    return file.text if file.link else file.text.rstrip() + "\n"


def _is_stale(root: Root, tool: Tool, image: Image, wanted: Sequence[OwnFile], changes: Sequence[FileChange]) -> bool:
    """Tell whether an image lacks our early script, or holds an old copy of it or of the rule (custom rules are copied)."""
    by_path = {one.path for one in wanted}
    changed = {change.path for change in changes}
    for path in (tool.script, RULES):
        inside = image.has(path)
        if path in by_path and (inside or path == tool.script):
            if not inside or path in changed or image.made < root.at(path).stat().st_mtime:
                return True
        elif inside:
            return True
    return False


def _notes(root: Root, functions: Sequence[Function], natives: dict[str, frozenset[str]], tool: Optional[Tool]) -> Iterable[str]:
    builtin = builtin_modules(root)
    for one in functions:
        inside = sorted(natives[str(one.address)] & builtin)
        if inside:
            yield f"{one.address}: {', '.join(inside)} is built into the kernel: it touches the device at boot before it is moved"
    if tool is None and functions:
        yield "no initramfs generator that we know: only the udev rule and the verify unit bind at boot"


def _apply(root: Root, change: FileChange) -> None:
    place = root.at(change.path)
    if change.after is None:
        remove_file(place)
        _remove_empty(root, os.path.dirname(change.path))
    elif change.after.link:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(change.after.text)
    else:
        write_file(place, change.after.text, change.after.mode)


def _remove_empty(root: Root, folder: str) -> None:
    # folders named after us are ours, all others were there before
    if "vfio-passthrough" not in folder:
        return
    try:
        root.at(folder).rmdir()
    except OSError:
        return


def _tell(root: Root, command: Sequence[str]) -> None:
    """Tell a daemon to read its files again; one that is not there (a chroot, an image build) reads them when it starts."""
    try:
        root.run(command, timeout=120)
    except Fault:
        return

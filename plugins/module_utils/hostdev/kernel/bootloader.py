"""Who really starts this machine: the table of boot loaders that are managed, and those that are known and left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from ..device.faults import Fault, Unsupported
from ..root import Root, entries, key_values, read_text
from .boot import Boot, Loader
from .cmdline import Edits, Line, kernel_part, parse
from .grub import DebianGrub

MANAGED: tuple[Loader, ...] = (DebianGrub(),)
_EFI = "/sys/firmware/efi/efivars"
_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


@dataclass(frozen=True)
class Known:
    """A way to boot that is recognised so that nobody edits GRUB's files in vain; where: where its arguments go."""

    name: str
    is_here: Callable[[Root], bool]
    where: str


def _is_system(*names: str) -> Callable[[Root], bool]:
    def test(root: Root) -> bool:
        release = key_values(read_text(root.at("/etc/os-release")) or "")
        return bool({release.get("ID", "").strip("\"'"), release.get("VARIANT_ID", "").strip("\"'")} & set(names))

    return test


def _exists(*paths: str) -> Callable[[Root], bool]:
    return lambda root: all(root.at(path).exists() for path in paths)


def _loader_info(root: Root) -> bool:
    # newer GRUB sets the variable too and says GRUB in it
    try:
        data = root.at(f"{_EFI}/LoaderInfo-{_VENDOR}").read_bytes()
    except OSError:
        return False
    return data[4:].decode("utf-16-le", errors="replace").startswith("systemd-boot")


def _is_xen(root: Root) -> bool:
    return "control_d" in (read_text(root.proc("xen", "capabilities")) or "")


# the order decides: the first that fits is the one that boots, whatever else is installed beside it
ELSEWHERE: tuple[Known, ...] = (
    Known("talos", _is_system("talos"), "the machine configuration (machine.install.extraKernelArgs), then an upgrade"),
    Known("xen-dom0", _is_xen, "nowhere: under Xen devices are handed over by xen-pciback, not VFIO"),
    Known("ostree", _exists("/run/ostree-booted"), "rpm-ostree kargs --append-if-missing=... --delete-if-present=..."),
    Known("ignition", _is_system("flatcar", "coreos"), "kernel_arguments of the Ignition configuration"),
    Known(
        "proxmox-boot-tool",
        lambda root: bool(read_text(root.at("/etc/kernel/proxmox-boot-uuids"))),
        "/etc/kernel/cmdline (systemd-boot) or a fragment in /etc/default/grub.d (GRUB), then proxmox-boot-tool refresh",
    ),
    Known("kernelstub", _exists("/etc/kernelstub/configuration"), "kernelstub -a ... -d ..."),
    Known("unified-kernel-image", _exists(f"{_EFI}/StubInfo-{_VENDOR}"), "/etc/kernel/cmdline, then build and sign the image again"),
    Known("systemd-boot", _loader_info, "/etc/kernel/cmdline, then kernel-install add for each kernel"),
    Known("grubby", _exists("/usr/sbin/grubby", "/boot/loader/entries"), "grubby --update-kernel=ALL --args=... --remove-args=..."),
)
_UNKNOWN = "your boot loader's configuration"


@dataclass(frozen=True)
class Unmanaged:
    """Stands in a row's place where no row fits: observes the running line, and refuses each change with the line to use."""

    name: str
    where: str
    settings: str = ""

    def recognise(self, _root: Root) -> bool:
        """It fits where nothing else does."""
        return True

    def observe(self, root: Root) -> Boot:
        """Return the running line; what comes next is not known."""
        return Boot(self.name, parse(read_text(root.proc("cmdline")) or ""))

    def text(self, _edits: Edits) -> str:
        """It has no file."""
        return ""

    def write(self, _root: Root, edits: Edits | None) -> None:
        """Raise Unsupported with the exact words and where they go."""
        raise self.refusal(edits or Edits())

    def remains(self, _root: Root) -> tuple[str, ...]:
        """It makes no folder."""
        return ()

    def refusal(self, edits: Edits) -> Unsupported:
        """Return the fault that names the words to add and to remove by hand."""
        parts = [f"add: {' '.join(edits.add)}"] if edits.add else []
        parts += [f"replace {edit.old} by {edit.new}" if edit.new else f"remove: {edit.old}" for edit in edits.replace]
        return Unsupported(
            what="change the boot arguments",
            subject=f"boot loader {self.name}",
            cause="it is not one of those that are managed here",
            hint=f"in {self.where}, {'; '.join(parts)}; then reboot",
        )


def loader_of(root: Root, managed: Sequence[Loader] = MANAGED) -> Loader:
    """Return the row of the boot loader that starts this machine; an Unmanaged one where none fits."""
    for known in ELSEWHERE:
        if known.is_here(root):
            return Unmanaged(known.name, known.where)
    found = next((loader for loader in managed if loader.recognise(root)), None)
    if found:
        return found
    return Unmanaged(
        "unknown", _UNKNOWN if not entries(root.at("/boot/grub")) else "the arguments that really start this kernel (it was not GRUB)"
    )


def read_boot(root: Root) -> Boot | None:
    """Return what the boot loader shows, None where its menu cannot be read.

    A report about devices is no place to complain of a menu: kernel_args does, when it has to change it.
    """
    try:
        return loader_of(root).observe(root)
    except Fault:
        return None


def next_line(boot: Boot | None) -> Line | None:
    """Return the words that the kernel gets at the next boot, None where they are not known."""
    entry = boot and (boot.default or next(iter(boot.normal), None))
    return kernel_part(entry.line) if entry else None


def next_words(root: Root) -> list[str] | None:
    """Return the words that the kernel gets at the next boot as texts, None where they are not known."""
    line = next_line(read_boot(root))
    return None if line is None else [word.text for word in line]

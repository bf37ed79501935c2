"""The bare-metal guest that lives as its kernel arguments say, and the user that runs it in a launcher image."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..harness.cache import cached
from ..vm.probe import FLAGS

HERE = Path(__file__).resolve().parent
# the distribution's interpreter: libvirt-python is built for it
PYTHON = "/usr/bin/python3"
USER = 107
# the first process of a pid namespace, without rights, in a root that has a record of its user
_ENTER = """
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
shift
exec setpriv --reuid "$1" --regid "$1" --clear-groups --bounding-set=-all --no-new-privs -- "$@"
"""


def guest_elf() -> Path:
    """Return the guest, a 32-bit multiboot ELF of some kilobytes; guest.c says what its arguments do."""
    return cached("guest", [HERE / "guest.c", HERE / "guest.ld", *FLAGS], _build, "1 s") / "guest.elf"


def _build(place: Path) -> None:
    command = ["gcc", *FLAGS, f"-Wl,-T,{HERE / 'guest.ld'}", "-o", str(place / "guest.elf"), str(HERE / "guest.c")]
    subprocess.run(command, check=True)


def as_container(folder: Path) -> tuple[str, ...]:
    """Return what makes a command the first process of a pid namespace, as user 107 without any right; folder takes two files."""
    for name, line in (("passwd", f"qemu:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin"), ("group", f"qemu:x:{USER}:")):
        known = Path("/etc", name).read_text(encoding="utf-8").splitlines()
        lines = [old for old in known if f":{USER}:" not in old]
        (folder / name).write_text("\n".join([*lines, line, ""]), encoding="utf-8")
    unshare = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    return (*unshare, "sh", "-ec", _ENTER.replace('--reuid "$1" --regid "$1"', f"--reuid {USER} --regid {USER}"), "sh", str(folder))

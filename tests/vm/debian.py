"""Where Debian's packages come from on this machine, and mmdebstrap runs that need no root."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

SUITE = "trixie"
SOURCES = Path("/etc/apt")
SLIM = (
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=APT::Install-Recommends "false"',
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "doc", "locale", "info")),
)


def mirror() -> str:
    """Return the Debian mirror of this machine's apt sources; "" (mmdebstrap's own choice) where it has none."""
    files = [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))]
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
        if found:
            return found[1]
    return ""


def mode() -> str:
    """Return how mmdebstrap works here: as root directly, else in a user namespace."""
    return "root" if os.geteuid() == 0 else "unshare"


def mmdebstrap(target: str, packages: Iterable[str], options: Sequence[str], lines: Sequence[str] = ()) -> None:
    """Make a Debian tree of the packages at target (a tar, or /dev/null); lines replace the one plain source."""
    command = ["mmdebstrap", "--quiet", f"--mode={mode()}", f"--include={','.join(packages)}", *options]
    sources = list(lines) or ([mirror()] if mirror() else [])
    run([*command, SUITE, target, *sources])


def as_owner(script: str, *arguments: str) -> None:
    """Run a shell script as root, or as the root of a user namespace when we are not root."""
    outer = [] if mode() == "root" else ["mmdebstrap", "--unshare-helper"]
    run([*outer, "sh", "-euc", script, "sh", *arguments])


def run(command: Sequence[str]) -> None:
    """Run a command; when it fails, raise with the command and the end of what it said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise RuntimeError(f"{shlex.join(command)[:300]} ended with {done.returncode}:\n{said}")

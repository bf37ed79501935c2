# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0 or later (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packages' layer of an image, made by mmdebstrap: no registry, no container tool."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .archive import whole
from .images import HERE, SUITE, Image


def packages_layer(image: Image, out: Path, mirror: str = "") -> Path:
    """Make the packages' layer with mmdebstrap (as root, or in a user namespace) and return its path.

    `mirror` is an archive of Debian; empty means the machine's own, and where it has none (Ubuntu) mmdebstrap's default.
    Raises subprocess.CalledProcessError when mmdebstrap fails; what it says goes to stderr.
    """
    mirror = mirror or machine_mirror()
    with whole(out) as draft:
        command = ["mmdebstrap", "--quiet", "--variant=essential", "--format=tar", *_options(image), SUITE, str(draft)]
        subprocess.run([*command, *([mirror] if mirror else [])], check=True, stdout=sys.stderr)
    return out


def _options(image: Image) -> list[str]:
    excludes = [HERE / "dpkg-excludes.conf", *([image.folder / image.excludes] if image.excludes else [])]
    steps = [f'--{hook}-hook=sh {image.folder / "image.sh"} {step} "$1"' for hook, step in image.steps]
    return [
        *(f"--dpkgopt={path}" for path in excludes),
        '--aptopt=APT::Install-Recommends "false"',
        f"--include={','.join(image.listed())}",
        *([f"--setup-hook={_backports_hook(image.folder / image.preferences)}"] if image.preferences else []),
        *steps,
        f'--customize-hook=sh {HERE / "trim.sh"} "$1"',
    ]


def _backports_hook(preferences: Path) -> str:
    """Return the shell line that adds the backports of whatever mirror mmdebstrap chose, and their preference."""
    sources = '"$1/etc/apt/sources.list"'
    add = f"sed -n 's/^\\(deb .*\\) {SUITE} main.*/\\1 {SUITE}-backports main/p' {sources} >\"$1/etc/apt/sources.list.d/backports.list\""
    return f'{add} && mkdir -p "$1/etc/apt/preferences.d" && cp {preferences} "$1/etc/apt/preferences.d/{preferences.name}"'


def machine_mirror(apt: Path = Path("/etc/apt")) -> str:
    """Return the Debian archive in this machine's apt sources (both formats), empty when it has none."""
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in files:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        for url in re.findall(r"^(?:URIs:|deb (?:\[[^]]*\] )?)\s*(\S+)", text, re.MULTILINE):
            if re.search(r"/debian/?$", url):
                return str(url)
    return ""

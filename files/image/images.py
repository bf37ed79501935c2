# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0 or later (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images that are built from this tree, a row each: what each holds beside the runtime, and what it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITE = "trixie"
SHARED = ("dpkg-excludes.conf", "trim.sh")  # what decides every image's packages' layer
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Image:
    """One image. packages: its list, one Debian package a line, # begins a comment. user: UID:GID of its program.

    steps: (hook of mmdebstrap, step of the folder's image.sh), in order. excludes, preferences: file names in the folder, of
    dpkg's and of apt's configuration; preferences say what is taken from the suite's backports.
    """

    name: str
    packages: Path
    entrypoint: tuple[str, ...]
    user: str
    env: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)
    steps: tuple[tuple[str, str], ...] = ()
    excludes: str = ""
    preferences: str = ""

    @property
    def folder(self) -> Path:
        """Return where the image's own files are."""
        return HERE.parent / self.name

    @property
    def repository(self) -> str:
        """Return the image's name without its tag."""
        return f"localhost/vfio-passthrough-{self.name.replace('_', '-')}"

    @property
    def shape(self) -> list[Path]:
        """Return what decides the packages' layer beside the list."""
        own = ["image.sh" if self.steps else "", self.excludes, self.preferences]
        return [*(HERE / name for name in SHARED), *(self.folder / name for name in own if name)]

    def listed(self) -> list[str]:
        """Return the packages."""
        lines = (line.partition("#")[0].strip() for line in self.packages.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line]

    def packages_key(self) -> str:
        """Return 12 hex digits over everything that decides the packages' layer but the day's package versions."""
        total = hashlib.sha256("\n".join([SUITE, *self.listed()]).encode())
        for path in self.shape:
            total.update(path.read_bytes())
        return total.hexdigest()[:12]


LAUNCHER = Image(
    name="launcher",
    packages=HERE.parent / "launcher/packages.txt",
    entrypoint=("hostdev", "launch"),
    user="107:107",
    env={
        **ENVIRONMENT,
        "HOME": "/var/lib/launcher",
        "XDG_CACHE_HOME": "/var/cache/launcher",
        "XDG_RUNTIME_DIR": "/var/lib/launcher/run",
    },
    steps=(("essential", "prepare"), ("customize", "probe"), ("customize", "finish")),
    excludes="dpkg-excludes.conf",
    preferences="backports.pref",
)
DEVICE_PLUGIN = Image(
    name="device_plugin",
    packages=HERE.parent / "device_plugin/packages.txt",
    entrypoint=("hostdev", "device-plugin"),
    user="0:0",  # it gives nodes to launchers, whoever they are
)
IMAGES = {image.name: image for image in (LAUNCHER, DEVICE_PLUGIN)}

"""Find the Python interpreters of this machine: on PATH, under /usr/bin and below pyenv's folder, never its shims."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

Version = tuple[int, int]
PROBE = "import ensurepip, ssl, sys, venv; print(sys.version_info[0], sys.version_info[1], sys.prefix == sys.base_prefix)"


def pyenv_versions() -> list[Path]:
    """Return the bin folders of the interpreters that pyenv has made, newest release of each first."""
    homes = [os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv")]
    found = [folder for home in homes if home for folder in Path(home).glob("versions/*/bin")]
    return sorted(set(found), key=lambda folder: [int(n) for n in re.findall(r"\d+", folder.parent.name)], reverse=True)


def candidates() -> Iterator[Path]:
    """Yield the python3.N commands, the preferred ones of a version first."""
    path = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    for folder in [*pyenv_versions(), *path, Path("/usr/local/bin"), Path("/usr/bin")]:
        if folder.name != "shims" and ".venv" not in folder.parts:
            yield from (file for file in sorted(folder.glob("python3.*")) if re.fullmatch(r"python3\.\d+", file.name))


def found() -> dict[Version, Path]:
    """Return a working interpreter per version, 3.9 and later, that can make virtual environments."""
    answer: dict[Version, Path] = {}
    for command in candidates():
        version = (3, int(command.name.partition(".")[2]))
        if version >= (3, 9) and version not in answer and works(command, version):
            answer[version] = command
    return dict(sorted(answer.items()))


def works(command: Path, version: Version) -> bool:
    """Tell whether the command runs, is that version, stands outside a virtual environment and has venv and ssl."""
    try:
        done = subprocess.run([str(command), "-c", PROBE], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.split() == [str(version[0]), str(version[1]), "True"]


def link_all(folder: Path, interpreters: Mapping[Version, Path]) -> str:
    """Fill the folder with links to exactly these interpreters; return a PATH with it first and without shims."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for (major, minor), command in interpreters.items():
        (folder / f"python{major}.{minor}").symlink_to(command)
    rest = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part and Path(part).name != "shims"]
    return os.pathsep.join([str(folder), *rest])

"""What the tests need of the machine's own package manager (Debian, Ubuntu): look, install, backports."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .say import say, step

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
KEYRINGS = ("debian-archive-keyring.gpg", "ubuntu-archive-keyring.gpg")


class Unprepared(Exception):
    """The machine lacks something; the text says what, and the line that puts it right."""


def release() -> dict[str, str]:
    """Return os-release as a mapping (ID, VERSION_CODENAME, ...); empty where the file is missing."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, dummy, value in pairs}


def wanted(lists: Iterable[Path]) -> list[str]:
    """Return the package names of the lists, sorted, once each; `a | b` stays one entry, `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for path in lists for line in path.read_text(encoding="utf-8").splitlines())
    return sorted({line for line in lines if line})


def installed() -> set[str]:
    """Return the names that installed packages have or provide.

    Provided names count, since releases rename libraries (the t64 ones) and keep the old name as provided.
    """
    if not shutil.which("dpkg-query"):
        raise Unprepared("looking for the packages that the tests need: this machine has no dpkg; use Debian 12, Debian 13 or Ubuntu 24.04")
    listing = subprocess.run(
        ["dpkg-query", "-W", "-f=${db:Status-Status}\t${Package}\t${Provides}\n"], capture_output=True, text=True, check=True
    ).stdout
    names: set[str] = set()
    for line in listing.splitlines():
        status, package, provides = line.split("\t")
        if status == "installed":
            names.add(package)
            names.update(item.split()[0].partition(":")[0] for item in provides.split(",") if item.strip())
    return names


def missing(packages: Iterable[str], present: set[str]) -> list[str]:
    """Return the entries of which no alternative is present."""
    return [entry for entry in packages if not present & {name.strip() for name in entry.split("|")}]


def choose(entry: str) -> str:
    """Return the first alternative of `a | b` that this release has, else the first."""
    names = [name.strip() for name in entry.split("|")]
    for name in names if len(names) > 1 else ():
        if subprocess.run(["apt-cache", "show", "--no-all-versions", name], capture_output=True, check=False).returncode == 0:
            return name
    return names[0]


def apt_get(arguments: Sequence[str]) -> None:
    """Run apt-get quietly; its output is shown only when it fails."""
    command = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "APT::Color=0", *arguments]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, text=True, capture_output=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Unprepared(f"running `{' '.join(command)}`: exit {done.returncode}:\n{tail}")


def install(packages: Sequence[str]) -> None:
    """Install the packages as root; anybody else is told the one line to run."""
    if os.geteuid() != 0:
        names = " ".join(choose(entry) for entry in packages)
        raise Unprepared(
            f"{len(packages)} packages are missing; run this line, then the command again:\n"
            f"sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}"
        )
    with step("apt-get update", "5 to 30 s"):
        apt_get(["update"])
    names_chosen = [choose(entry) for entry in packages]
    with step(f"apt-get install {' '.join(names_chosen)}", "10 s to 3 min"):
        apt_get(["install", "--no-install-recommends", *names_chosen])


def archive(codename: str) -> tuple[str, set[str]]:
    """Return the mirror that the machine's own sources name for its release, and the suites that they have."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [row.split() for row in targets.splitlines()]
    mirrors = [row[0] for row in rows if row[1:] == [codename, "main"]]
    if not mirrors:
        raise Unprepared(f"reading apt's sources: none of them serves {codename}/main; add the release's own archive to /etc/apt")
    return mirrors[0], {row[1] for row in rows}


def source_line(mirror: str, suite: str) -> str:
    """Return the one-line apt source of a suite, signed by the distribution's keyring where that is a file of its own."""
    keys = [path for path in (Path("/usr/share/keyrings") / name for name in KEYRINGS) if path.is_file()]
    signed = f"[signed-by={keys[0]}] " if keys else ""
    return f"deb {signed}{mirror} {suite} main\n"


def install_from_backports(packages: Sequence[str]) -> None:
    """Install packages from CODENAME-backports; the suite is a source of this one command, not of the machine."""
    codename = release().get("VERSION_CODENAME", "")
    suite = f"{codename}-backports"
    mirror, suites = archive(codename)
    if os.geteuid() != 0:
        line = source_line(mirror, suite).strip()
        names = " ".join(packages)
        raise Unprepared(
            f"{names} of this release is too old; run this line, then the command again:\n"
            f"echo '{line}' | sudo tee /etc/apt/sources.list.d/{suite}.list"
            f" && sudo apt-get update && sudo apt-get install -y --no-install-recommends -t {suite} {names}"
        )
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder)
        for source in Path("/etc/apt/sources.list.d").glob("*"):
            shutil.copy(source, parts)
        if suite not in suites:
            (parts / f"{suite}.list").write_text(source_line(mirror, suite), encoding="utf-8")
        # apt's sandbox user reads the folder too
        parts.chmod(0o755)
        options = ["-o", f"Dir::Etc::sourceparts={parts}"]
        say(f"using the suite {suite} of {mirror} for this command only")
        with step(f"apt-get install {' '.join(packages)} from {suite}", "30 s to 2 min"):
            apt_get([*options, "update"])
            apt_get([*options, "install", "--no-install-recommends", "-t", suite, *packages])

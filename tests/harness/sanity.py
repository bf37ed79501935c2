"""ansible-test sanity and units on the oldest and the newest ansible-core that this machine's interpreters allow."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import interpreters
from .cache import folder
from .environments import environment
from .interpreters import Version
from .say import say, step
from .work import BUILD, Tally, call, copy_tree, junit

# ansible-core's minor release: what controller it runs on, what pip is asked for, the Pythons that it tests modules with.
# 2.17 is left out, since the current tools refuse it for a security fault that it never had mended.
CORES: Mapping[str, tuple[tuple[Version, ...], str]] = {
    "2.16": (((3, 10), (3, 11), (3, 12)), "ansible-core>=2.16.14,<2.17"),
    "2.18": (((3, 11), (3, 12), (3, 13)), "ansible-core>=2.18,<2.19"),
    "2.20": (((3, 12), (3, 13), (3, 14)), "ansible-core>=2.20,<2.21"),
}
INSISTED: tuple[Version, ...] = ((3, 9), (3, 13))

# ansible-test fetches pip's bootstrap script from a host that closed networks do not reach; it looks here first.
BOOTSTRAP = '''"""Put pip into the running environment from the copy that Python carries, then install what is asked for."""
import subprocess
import sys

# in a process of its own: ensurepip switches pip's settings off in the one that it runs in
subprocess.check_call([sys.executable, "-m", "ensurepip"])
wanted = [item for item in sys.argv[1:] if not item.startswith("pip==")]
packages = [item for item in wanted if not item.startswith("-")]
if packages:
    raise SystemExit(subprocess.call([sys.executable, "-m", "pip", "install"] + wanted))
'''


@dataclass(frozen=True)
class Bench:
    """One ansible-core in its own virtual environment."""

    controller: Version
    core: Path
    release: str


def core(requirement: str, version: Version, command: Path) -> Bench:
    """Return an environment with that ansible-core on that interpreter, kept in the cache."""

    place = environment("ansible-core", command, [requirement], "20 s")
    program = "import importlib.metadata as m; print(m.version('ansible-core'))"
    shown = subprocess.run([str(place / "bin/python"), "-c", program], capture_output=True, text=True, check=True).stdout
    return Bench(version, place, shown.strip())


def oldest_and_newest(found: Mapping[Version, Path]) -> list[Bench]:
    """Return the ends of the range of ansible-core that these interpreters allow; one when both are the same."""
    old = next(
        (core(wanted, version, found[version]) for pythons, wanted in CORES.values() for version in pythons if version in found), None
    )
    newest = max(found)
    new = core("ansible-core", newest, found[newest])
    return [new] if old is None or old.release == new.release else [old, new]


def prepare_home(home: Path) -> None:
    """Put the pip bootstrap under every name that a release of ansible-test looks for, and pip's settings beside it."""
    cache = home / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("23_1_2", "24_2", "25_2"):
        (cache / f"get_pip_{name}.py").write_text(BOOTSTRAP, encoding="utf-8")
    settings = home / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.touch(mode=0o600)
    settings.write_text(pip_settings(), encoding="utf-8")


def pip_settings() -> str:
    """Return pip's settings here (files and environment) as one file: ansible-test hands no variable on to its pip."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for row in sorted(listing.splitlines(), key=lambda row: row.startswith(":env:")):
        key, unused, value = row.partition("=")
        section, dummy, name = key.rpartition(".")
        if section in {"global", ":env:"}:
            found[name] = ast.literal_eval(value)
    found["cache-dir"] = str(folder() / "pip")
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in found.items()), ""])


def run_one(bench: Bench, found: Mapping[Version, Path], path: str) -> Tally:
    """Run sanity, then units, with one ansible-core; its home and its copy of the tree are its own, so that two run at once."""
    home = folder() / f"ansible-test-{bench.release}"
    prepare_home(home)
    env = {"HOME": str(home), "PATH": os.pathsep.join([str(bench.core / "bin"), path])}
    collections = folder() / f"copy-{bench.release}"
    tree = copy_tree(collections)
    env["ANSIBLE_COLLECTIONS_PATH"] = str(collections)
    program = str(bench.core / "bin/ansible-test")
    own = f"{bench.controller[0]}.{bench.controller[1]}"
    total = Tally()
    with step(f"ansible-test sanity, ansible-core {bench.release} on Python {own}", "4 min cold, 1 min warm"):
        total += one(f"sanity-{bench.release}", [program, "sanity", "--color", "no", "--junit"], tree, env)
    for version in unit_versions(bench, found):
        text = f"{version[0]}.{version[1]}"
        command = [program, "units", "--color", "no", "--requirements", "--venv", "--python", text, "--num-workers", "2"]
        with step(f"ansible-test units, ansible-core {bench.release}, Python {text}", "30 s cold, 10 s warm"):
            total += one(f"units-{bench.release}-{text}", command, tree, env)
    return total


def unit_versions(bench: Bench, found: Mapping[Version, Path]) -> list[Version]:
    """Return the interpreters to run the units on: the oldest of all with the oldest core, its own with the newest."""
    return [min(found)] if bench.controller != max(found) else [max(found)]


def one(name: str, command: list[str], tree: Path, env: Mapping[str, str]) -> Tally:
    """Run one ansible-test command; count its JUnit cases, and one failure where it ran nothing."""
    output = tree / "tests/output/junit"
    before = set(output.glob("*.xml"))
    good, text = call(name, command, cwd=tree, env=env)
    files = sorted(set(output.glob("*.xml")) - before)
    kept = BUILD / "results" / name
    kept.mkdir(parents=True, exist_ok=True)
    for file in files:
        (kept / file.name).write_bytes(file.read_bytes())
    counted = junit(files)
    if counted.passed == 0 or "All targets skipped" in text:
        say(f"{name}: ran no test, which counts as a failure")
        return Tally(0, max(1, counted.failed))
    if not good and not counted.failed:
        return counted + Tally(0, 1)
    say(f"{name}: {counted}")
    return counted


def run() -> Tally:
    """Run everything; raise no error but count what failed."""
    found = interpreters.found()
    say("Python interpreters: " + ", ".join(f"{major}.{minor}" for major, minor in found))
    total = Tally()
    if os.environ.get("HOSTDEV_CI"):
        for version in INSISTED:
            if version not in found:
                say(f"Python {version[0]}.{version[1]} is insisted on here (HOSTDEV_CI), and was found neither on PATH nor under pyenv")
                total += Tally(0, 1)
    path = interpreters.link_all(folder() / "interpreters", found)
    with ThreadPoolExecutor() as pool:
        return sum(pool.map(lambda bench: run_one(bench, found, path), oldest_and_newest(found)), total)

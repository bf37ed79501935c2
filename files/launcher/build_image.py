# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0 or later (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the launcher image without a registry and without a container tool: mmdebstrap makes the packages' layer,
this script the layer with the runtime, and both go into one docker archive that containerd, CRI-O's skopeo and podman load.

Containerfile beside this file makes the same image from the same list of packages.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

HERE = Path(__file__).resolve().parent
SUITE = "trixie"
REPOSITORY = "localhost/vfio-passthrough-launcher"
HOME = "usr/lib/vfio-passthrough/hostdev"
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/var/lib/launcher",
    "XDG_CACHE_HOME": "/var/cache/launcher",
    "XDG_RUNTIME_DIR": "/var/lib/launcher/run",
    "PYTHONDONTWRITEBYTECODE": "1",
}
ENTRYPOINT = ("hostdev", "launch")
USER = "107:107"
SHAPE = ("image.sh", "backports.pref", "dpkg-excludes.conf")  # what else decides the packages' layer
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What the image's own Python needs to compile the runtime here, as tar patterns over the packages' layer.
INTERPRETER = (
    "./usr/bin/python3*",
    "./usr/lib/python3.*",
    *(f"./usr/lib/*-linux-gnu/{library}.so*" for library in ("libc", "libm", "libz", "libexpat")),
    "./usr/lib/*-linux-gnu/ld-linux-*",
)
EPOCH = 1767225600  # one time stamp for all files of the runtime: equal trees make equal layers


class Entry(NamedTuple):
    """One member of a layer: a folder (data None, no target), a file, or a symbolic link (target)."""

    path: str
    data: Optional[bytes] = None
    mode: int = 0o644
    target: str = ""


# --- docker archive -----------------------------------------------------------------------------------------------


def write_layer(out: Path, entries: Iterable[Entry]) -> Path:
    """Write a layer tar of these entries, all root's and of one time; return its path."""
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.path)
            member.mode, member.mtime = entry.mode, EPOCH
            if entry.target:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target
            elif entry.data is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            else:
                member.size = len(entry.data)
            archive.addfile(member, None if entry.data is None else io.BytesIO(entry.data))
    return out


def write_image(
    out: Path,
    name: str,
    layers: Sequence[Path],
    *,
    env: Mapping[str, str],
    entrypoint: Sequence[str],
    user: str = "",
) -> Path:
    """Write a docker archive (manifest.json, config, layer tars; the form of `docker save`) and return its path.

    `layers` are uncompressed layer tars, the lowest first; `name` is REPOSITORY:TAG.
    """
    sums = [_sha256(layer) for layer in layers]
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"{key}={value}" for key, value in env.items()], "Entrypoint": list(entrypoint), "User": user},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in sums]},
    }
    encoded = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    members = [f"{each}/layer.tar" for each in sums]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": members}]).encode()
    with _whole(out) as draft, tarfile.open(draft, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, layer in zip(members, layers):
            archive.add(layer, member, filter=_anonymous)
        for member, data in ((config_name, encoded), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Yield a draft's path; the file gets its name only when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, out)
    finally:
        if draft.exists():
            draft.unlink()


# --- layer 1: packages --------------------------------------------------------------------------------------------


def packages(path: Path) -> list[str]:
    """Return the packages of a list: one a line, # begins a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def packages_key(path: Path) -> str:
    """Return 12 hex digits over everything that decides the packages' layer but the day's package versions."""
    total = hashlib.sha256("\n".join([SUITE, *packages(path)]).encode())
    for name in SHAPE:
        total.update((HERE / name).read_bytes())
    return total.hexdigest()[:12]


def packages_layer(out: Path, names: Sequence[str], mirror: str = "") -> Path:
    """Make the packages' layer with mmdebstrap (as root, or in a user namespace) and return its path.

    `mirror` is an archive of Debian; empty means the machine's own, and where it has none (Ubuntu) mmdebstrap's default.
    Raises subprocess.CalledProcessError when mmdebstrap fails; what it says goes to stderr.
    """
    mirror = mirror or machine_mirror()
    with _whole(out) as draft:
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            "--format=tar",
            f"--dpkgopt={HERE / 'dpkg-excludes.conf'}",
            '--aptopt=APT::Install-Recommends "false"',
            f"--include={','.join(names)}",
            f"--setup-hook={_backports_hook()}",
            f'--essential-hook=sh {HERE / "image.sh"} prepare "$1"',
            f'--customize-hook=sh {HERE / "image.sh"} probe "$1"',
            f'--customize-hook=sh {HERE / "image.sh"} finish "$1"',
            SUITE,
            str(draft),
            *([mirror] if mirror else []),
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return out


def _backports_hook() -> str:
    """Return the shell line that adds the backports of whatever mirror mmdebstrap chose, and their preference."""
    sources = '"$1/etc/apt/sources.list"'
    add = f"sed -n 's/^\\(deb .*\\) {SUITE} main.*/\\1 {SUITE}-backports main/p' {sources} >\"$1/etc/apt/sources.list.d/backports.list\""
    return f'{add} && mkdir -p "$1/etc/apt/preferences.d" && cp {HERE / "backports.pref"} "$1/etc/apt/preferences.d/launcher.pref"'


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


# --- layer 2: the runtime -----------------------------------------------------------------------------------------


def runtime_entries(runtime: Path) -> list[Entry]:
    """Return the layer of the runtime: a tree (the folder hostdev itself) or a tar archive that holds hostdev/."""
    files = _archive_files(runtime) if runtime.is_file() else _tree_files(runtime)
    if "cli.py" not in files:
        raise FileNotFoundError(f"{runtime} holds no runtime: there is no cli.py in it")
    folders = {str(parent) for name in files for parent in Path(HOME, name).parents if str(parent) != "."}
    program = Entry("usr/bin/hostdev", (HERE / "hostdev").read_bytes(), 0o755)
    return [
        *(Entry(folder) for folder in sorted(folders - {"usr", "usr/lib"})),
        *(Entry(f"{HOME}/{name}", data) for name, data in sorted(files.items())),
        program,
    ]


def runtime_layer(out: Path, entries: Sequence[Entry], base: Path) -> Path:
    """Write the layer of the runtime and its byte code, made by the Python of the packages' layer `base`; return its path."""
    return write_layer(out, [*entries, *compiled(entries, base, out.parent)])


def compiled(entries: Sequence[Entry], base: Path, scratch: Path) -> list[Entry]:
    """Return the byte code of the runtime's files; its reader checks no times, which unpacking a layer may change.

    The form of byte code differs from one Python to the next, and this machine's may be another than the image's. The
    image's own runs from below a folder in `scratch` by its own loader, which takes neither rights nor another root.
    Raises subprocess.CalledProcessError when it cannot; what it says goes to stderr.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        root = Path(work)
        subprocess.run(["tar", "-x", "-f", str(base), "-C", work, "--wildcards", *INTERPRETER], check=True)
        for entry in entries:
            if entry.path.endswith(".py") and entry.data is not None:
                (root / entry.path).parent.mkdir(parents=True, exist_ok=True)
                (root / entry.path).write_bytes(entry.data)
        loader = next((root / "usr/lib").glob("*-linux-gnu/ld-linux-*"))
        command = [str(loader), "--library-path", str(loader.parent), str(root / "usr/bin/python3"), "-s", "-m", "compileall", "-q"]
        places = ["-s", work, "-p", "/", str(root / HOME)]
        env = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
        subprocess.run([*command, "--invalidation-mode", "unchecked-hash", *places], check=True, env=env, stdout=sys.stderr)
        made = sorted(path for path in (root / HOME).rglob("__pycache__") for path in [path, *path.iterdir()])
        return [Entry(str(path.relative_to(root)), None if path.is_dir() else path.read_bytes()) for path in made]


def _tree_files(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}


def _archive_files(archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            _before, mark, name = f"/{member.name}".partition("/hostdev/")
            content = tar.extractfile(member) if mark and "__pycache__" not in name else None
            if content is not None:
                found[name] = content.read()
    return found


# --- the image ----------------------------------------------------------------------------------------------------


def image_name(runtime: Path, package_list: Path) -> str:
    """Return the name that the image of these inputs has; known before the image is built."""
    return name_of(runtime_entries(runtime), package_list)


def name_of(entries: Sequence[Entry], package_list: Path) -> str:
    """Return the name of the image with this runtime layer; of entries, so that name and content come from one reading."""
    total = hashlib.sha256(packages_key(package_list).encode())
    for entry in entries:
        total.update(hashlib.sha256(entry.path.encode()).digest() + hashlib.sha256(entry.data or b"").digest())
    total.update(json.dumps([ENVIRONMENT, ENTRYPOINT, USER]).encode())
    return f"{REPOSITORY}:{total.hexdigest()[:12]}"


def build(entries: Sequence[Entry], out: Path, *, name: str, package_list: Path, mirror: str, cache: Path) -> Path:
    """Write the launcher image to `out`; the packages' layer is kept in `cache` and made once per list."""
    base = cache / f"launcher-packages-{packages_key(package_list)}.tar"
    if not base.is_file():
        packages_layer(base, packages(package_list), mirror)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        top = runtime_layer(Path(work) / "runtime.tar", entries, base)
        return write_image(out, name, [base, top], env=ENVIRONMENT, entrypoint=ENTRYPOINT, user=USER)


def names_in(archive: Path) -> list[str]:
    """Return the names that a docker archive gives its image."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise ValueError(f"{archive}: manifest.json is no file")
        return [str(name) for image in json.load(manifest) for name in image["RepoTags"]]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Build the launcher image and print its name."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runtime", type=Path, required=True, help="the runtime: folder hostdev, or a tar archive that holds it")
    parser.add_argument("--out", type=Path, help="the docker archive to write")
    parser.add_argument("--name", default="", help=f"name of the image (default: {REPOSITORY}:DIGEST OF THE INPUTS)")
    parser.add_argument("--packages", type=Path, default=HERE / "packages.txt", help="list of packages (default: beside this script)")
    parser.add_argument("--mirror", default="", help="Debian archive (default: that of this machine's apt sources)")
    parser.add_argument("--cache", type=Path, default=Path("/var/cache/vfio-passthrough"), help="where the packages' layer is kept")
    parser.add_argument("--print-name", action="store_true", help="only print the name that the image would have")
    options = parser.parse_args(arguments)
    entries = runtime_entries(options.runtime)
    name = options.name or name_of(entries, options.packages)
    if not options.print_name:
        if options.out is None:
            parser.error("--out is needed to build an image")
        build(
            entries,
            options.out,
            name=name,
            package_list=options.packages,
            mirror=options.mirror,
            cache=options.cache,
        )
    sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

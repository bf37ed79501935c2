# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0 or later (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build an image of this tree without a registry and without a container tool: `python3 -m files.image.build_image NAME`.

mmdebstrap makes the packages' layer, this program the layer with the runtime, and both go into one docker archive. The
Containerfile in the image's folder makes the same image from the same list of packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from .archive import Entry, write_image, write_layer
from .images import HERE, IMAGES, Image
from .packages import packages_layer

RUNTIME = HERE.parents[1] / "plugins/module_utils/hostdev"
HOME = "usr/lib/vfio-passthrough/hostdev"
# What the image's own Python needs to compile the runtime here, as tar patterns over the packages' layer.
INTERPRETER = (
    "./usr/bin/python3*",
    "./usr/lib/python3.*",
    *(f"./usr/lib/*-linux-gnu/{library}.so*" for library in ("libc", "libm", "libz", "libexpat")),
    "./usr/lib/*-linux-gnu/ld-linux-*",
)


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


def name_of(image: Image, entries: Sequence[Entry]) -> str:
    """Return REPOSITORY:DIGEST OF THE INPUTS for this runtime layer; of entries, so that name and content come from one reading."""
    total = hashlib.sha256(image.packages_key().encode())
    for entry in entries:
        total.update(hashlib.sha256(entry.path.encode()).digest() + hashlib.sha256(entry.data or b"").digest())
    total.update(json.dumps([dict(image.env), image.entrypoint, image.user]).encode())
    return f"{image.repository}:{total.hexdigest()[:12]}"


def assemble(image: Image, entries: Sequence[Entry], base: Path, out: Path, name: str) -> Path:
    """Write the image of a packages' layer and a runtime to `out`, and return its path."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        top = runtime_layer(Path(work) / "runtime.tar", entries, base)
        return write_image(out, name, [base, top], env=image.env, entrypoint=image.entrypoint, user=image.user)


def build(image: Image, entries: Sequence[Entry], out: Path, *, name: str, mirror: str, cache: Path) -> Path:
    """Write an image to `out`; the packages' layer is kept in `cache` and made once per list."""
    base = cache / f"{image.name}-packages-{image.packages_key()}.tar"
    if not base.is_file():
        packages_layer(image, base, mirror)
    return assemble(image, entries, base, out, name)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Build an image and print its name."""
    parser = argparse.ArgumentParser(prog="build_image", description=main.__doc__)
    parser.add_argument("image", choices=sorted(IMAGES), help="which image")
    parser.add_argument(
        "--runtime", type=Path, default=RUNTIME, help="folder hostdev, or a tar archive that holds it (default: this tree's)"
    )
    parser.add_argument("--out", type=Path, help="the docker archive to write; without it only the name is printed that it would have")
    parser.add_argument("--name", default="", help="name of the image (default: localhost/vfio-passthrough-IMAGE:DIGEST OF THE INPUTS)")
    parser.add_argument("--packages", type=Path, help="another list of packages")
    parser.add_argument("--mirror", default="", help="Debian archive (default: that of this machine's apt sources)")
    parser.add_argument("--cache", type=Path, default=Path("/var/cache/vfio-passthrough"), help="where the packages' layer is kept")
    options = parser.parse_args(arguments)
    image = IMAGES[options.image]
    if options.packages:
        image = replace(image, packages=options.packages)
    entries = runtime_entries(options.runtime)
    name = options.name or name_of(image, entries)
    if options.out is not None:
        build(image, entries, options.out, name=name, mirror=options.mirror, cache=options.cache)
    sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The runtime as one archive: made the same from the same tree, known by a digest of what is in it."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path

from ..hostdev.device.faults import Refused

PACKAGE = "hostdev"
VERSION_FILE = "device/version.py"
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_VERSION = re.compile(r"^__version__ = \"([^\"]+)\"", re.MULTILINE)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the package's files by their path in the archive ("hostdev/root.py"), sorted; compiled files are left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc")
    return {f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


def digest(files: dict[str, bytes]) -> str:
    """Return the SHA-256 over names and contents: controllers whose zlib packs otherwise agree in it."""
    total = hashlib.sha256()
    for name, content in sorted(files.items()):
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def pack(files: dict[str, bytes]) -> bytes:
    """Return the files as a zip archive with fixed times and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr, info.compress_type, info.create_system = _MODE, zipfile.ZIP_DEFLATED, 3
            archive.writestr(info, content)
    return buffer.getvalue()


def unpack(path: Path, wanted: str) -> dict[str, bytes]:
    """Return an archive's files; Refused when they are not those of the wanted digest or would leave their folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise Refused(what="read the runtime's archive", subject=str(path), cause=str(error), hint="run the task again") from error
    astray = [name for name in files if not name.startswith(f"{PACKAGE}/") or ".." in name.split("/")]
    if astray or digest(files) != wanted:
        cause = f"{astray[0]} lies outside of {PACKAGE}/" if astray else f"its content has the digest {digest(files)}, not {wanted}"
        raise Refused(what="accept the runtime's archive", subject=str(path), cause=cause, hint="run the task again")
    return files


def version_of(text: str | None) -> str:
    """Return the version that the text of VERSION_FILE states, or empty text."""
    found = _VERSION.search(text or "")
    return found[1] if found else ""

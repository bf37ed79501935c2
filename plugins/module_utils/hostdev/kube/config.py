"""The device plugin's configuration over time: what the file declares now, or what it declared when it was last right."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

from ..device.declaration import Declaration
from ..device.faults import Absent, Fault
from ..root import write_file

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Optional[Stamp]:
    """Return what changes when a file is replaced or written, None when it is absent."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Configuration:
    """The declaration of one file. A copy of what was read last without a fault outlives the process, where it can be written."""

    def __init__(self, path: Path, copy: Path, load: Callable[[str], Declaration]) -> None:
        """Read the file, and where it is wrong the copy; raises the file's fault when there is neither, or no file."""
        self._path, self._copy, self._load = path, copy, load
        self._seen: Optional[Stamp] = None
        try:
            self.declaration = self._read()
        except Absent:
            raise
        except Fault as fault:
            former = self._former()
            if former is None:
                raise
            log.error("%s; SERVING WHAT WAS DECLARED BEFORE, kept in %s, until it is mended", fault.text(), copy)  # noqa: TRY400
            self.declaration = former

    @property
    def changed(self) -> bool:
        """Return whether the file was replaced or written since it was last read."""
        return stamp_of(self._path) != self._seen

    def read_again(self) -> None:
        """Take the file as it is now; the former declaration stays when it is wrong or gone, whatever is wrong with it."""
        try:
            self.declaration = self._read()
        except Fault as fault:
            log.error("%s; the former declaration stays", fault.text())  # noqa: TRY400
        except Exception as error:
            # who serves must not end by what somebody writes into a file
            log.exception("%s cannot be read: %s; the former declaration stays", self._path, type(error).__name__)
        else:
            log.info("read %s again", self._path)

    def _read(self) -> Declaration:
        self._seen = stamp_of(self._path)
        declaration = self._load(str(self._path))
        try:
            write_file(self._copy, self._path.read_text(encoding="utf-8"))
        except (Fault, OSError, ValueError) as error:
            log.warning("%s; without this copy a restart with a wrong file serves nothing", error)
        return declaration

    def _former(self) -> Optional[Declaration]:
        with suppress(Fault):
            return self._load(str(self._copy))
        return None

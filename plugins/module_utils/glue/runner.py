# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands of the runtime, run the way Ansible wants a module's commands to be run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from ..hostdev.device.faults import Absent, Timeout
from ..hostdev.root import Done, Runner

_LOCALE = {"LC_ALL": "C", "LANGUAGE": "C"}
# a module reached by a plain user's shell and sudo may lack the administrator's folders
_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_LATE = 124


def command_runner(module: Any) -> Runner:
    """Return a runner over module.run_command; run_command knows no time limit, so coreutils' timeout keeps it.

    Absent when there is no such program, Timeout after the given seconds.
    """

    def run(command: Sequence[str], timeout: float) -> Done:
        search = f"{os.environ.get('PATH', '')}:{_FOLDERS}"
        if shutil.which(command[0], path=search) is None:
            raise Absent(what="run a command", subject=command[0], cause="no such program on this machine", hint=f"install {command[0]}")
        limited = ["timeout", "--kill-after=5", f"{timeout:g}", *command]
        code, out, err = module.run_command(limited, check_rc=False, environ_update={**_LOCALE, "PATH": search})
        if code == _LATE:
            raise Timeout(what="run a command", subject=" ".join(command), cause=f"no answer within {timeout:g} s")
        return Done(code, out, err)

    return run

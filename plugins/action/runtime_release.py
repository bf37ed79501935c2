# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ship the runtime: ask the node whether it has this release, send the one archive only when it has not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.glue import pack

MODULE = "vfio.passthrough.runtime_release"
RUNTIME = Path(__file__).resolve().parent.parent / "module_utils" / pack.PACKAGE


class ActionModule(ActionBase):  # type: ignore[misc]
    """Packs plugins/module_utils/hostdev of the collection that this file belongs to."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result: of its one run when nothing has to be sent, else of the second."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "present") == "absent":
            return {**result, **self._ask(arguments, task_vars)}
        files = pack.tree(RUNTIME)
        arguments["digest"] = pack.digest(files)
        answer = self._ask(arguments, task_vars)
        if answer.get("missing") and not answer.get("failed") and not self._task.check_mode:
            answer = self._send(pack.pack(files), arguments, task_vars)
        return {**result, **answer}

    def _ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        return answer

    def _send(self, archive: bytes, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        shell = self._connection._shell  # noqa: SLF001 - action plugins have no other way to it
        try:
            # the first question may have made the folder already
            folder = shell.tmpdir or self._make_tmp_path()
            remote = shell.join_path(folder, "runtime.zip")
            with tempfile.NamedTemporaryFile(suffix=".zip") as local:
                local.write(archive)
                local.flush()
                self._transfer_file(local.name, remote)
            self._fixup_perms2((folder, remote))
            return self._ask({**arguments, "archive": remote}, task_vars)
        finally:
            self._remove_tmp_path(shell.tmpdir)

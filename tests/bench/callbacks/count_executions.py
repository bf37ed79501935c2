"""Write a line per module that Ansible executes, those that action plugins start included.

Loaded before the workers are forked, so that they inherit the wrapped method. Each line is JSON: role, task, module,
transport. The file is the one that BENCH_EXECUTIONS names; lines are short enough to be appended whole.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: count_executions
type: aggregate
short_description: Write a line per executed module
description: For benchmarks.
"""

_execute = ActionBase._execute_module


def _counted(self: Any, module_name: Any = None, *arguments: Any, **named: Any) -> Any:
    role = self._task._role
    line = {
        "role": role.get_name() if role else "",
        "task": self._task.get_name(),
        "module": module_name or self._task.action,
        "transport": self._connection.transport,
    }
    handle = os.open(os.environ["BENCH_EXECUTIONS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
    finally:
        os.close(handle)
    return _execute(self, module_name, *arguments, **named)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Sets the counter; what happens to tasks is left to other callbacks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "count_executions"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        ActionBase._execute_module = _counted

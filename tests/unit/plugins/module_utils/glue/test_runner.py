"""Commands through module.run_command, for real."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.runner import command_runner
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done


class Module:
    """run_command as AnsibleModule has it, as far as the runner uses it."""

    def run_command(self, command: list[str], *, check_rc: bool, environ_update: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, env=environ_update, check=check_rc)
        return done.returncode, done.stdout, done.stderr


def run(*command: str, timeout: float = 20) -> Any:
    return command_runner(Module())(command, timeout)


def test_answer_is_handed_on() -> None:
    assert run("sh", "-c", 'echo "$LC_ALL$1"; echo no >&2; exit 3', "sh", "a b") == Done(3, "Ca b\n", "no\n")


def test_no_such_program() -> None:
    with pytest.raises(Absent, match="no-such-program"):
        run("no-such-program")


def test_no_answer_in_time() -> None:
    with pytest.raises(Timeout, match=r"no answer within 0\.05 s"):
        run("sleep", "60", timeout=0.05)

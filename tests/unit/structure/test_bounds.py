"""What the harness runs ends, also when it hangs."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.vfio.passthrough.tests.harness import work
from ansible_collections.vfio.passthrough.tests.harness.work import bounded


def test_a_command_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    # a shell's child in the background does not hear of an interrupt, and is ended after the grace
    monkeypatch.setattr(work, "GRACE", 0.2)
    # of its own, so that another run beside this one is not taken for it
    asleep = f"sleep 1234.{os.getpid()}"
    assert bounded(["sh", "-c", f"{asleep} & {asleep}"], seconds=0.2) == 1
    assert subprocess.run(["pgrep", "-f", asleep], check=False, capture_output=True).returncode == 1


def test_the_exit_code_is_the_commands() -> None:
    assert bounded(["sh", "-c", "exit 3"], seconds=60) == 3

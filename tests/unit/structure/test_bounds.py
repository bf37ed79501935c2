"""What the harness runs ends, also when it hangs."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.vfio.passthrough.tests.harness import work
from ansible_collections.vfio.passthrough.tests.harness.work import bounded


def test_a_command_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    # a shell's child in the background does not hear of an interrupt, and is ended after the grace
    monkeypatch.setattr(work, "GRACE", 0.2)
    assert bounded(["sh", "-c", "sleep 1234.5 & sleep 1234.5"], seconds=0.2) == 1
    assert subprocess.run(["pgrep", "-f", "sleep 1234.5"], check=False, capture_output=True).returncode == 1


def test_the_exit_code_is_the_commands() -> None:
    assert bounded(["sh", "-c", "exit 3"], seconds=60) == 3

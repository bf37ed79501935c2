"""The state file: who believes it, and what becomes of it when it cannot be written."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import PLUGIN_LOCK, PLUGIN_STATE, read_state
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import state as module
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.service import Service, run
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.state import StateFile
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import write_file
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.plugin import PluginBench


def test_a_state_is_believed_while_its_service_runs(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write(PLUGIN_STATE, '{"units": []}')
    assert read_state(host.root) is None
    with alone(host.root.at(PLUGIN_LOCK)):
        assert read_state(host.root) is not None
    assert read_state(host.root) is None


def test_who_may_not_ask_for_the_lock_believes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost(tmp_path)
    host.write(PLUGIN_STATE, '{"units": []}')
    host.write(PLUGIN_LOCK, "")
    opened = os.open

    def refused(path: Any, *given: Any) -> int:
        if str(path).endswith(PLUGIN_LOCK):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given)

    monkeypatch.setattr(os, "open", refused)
    assert read_state(host.root) is not None


def test_the_state_of_a_killed_service_is_not_believed(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write(PLUGIN_STATE, '{"units": []}')
    lock = host.root.at(PLUGIN_LOCK)
    holding = f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        service.stdout.readline()
        assert read_state(host.root) is not None
        service.kill()
    assert read_state(host.root) is None


def test_a_service_that_cannot_start_leaves_no_state(tmp_path: Path) -> None:
    bench = PluginBench(tmp_path)
    bench.host.write("/r/devices.json", '{"units": []}')
    bench.host.write("/etc/devices.json", "{")
    with pytest.raises(Refused):
        run(bench.host.root, bench.options)
    assert not bench.options.state.exists()


def test_who_asks_whether_a_service_runs_keeps_none_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    asking = os.open(lock, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    # what the wait is for happens in it
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(asking))
    with alone(lock):
        assert lock.read_text(encoding="ascii").strip() == str(os.getpid())


def test_a_state_that_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = PluginBench(tmp_path)
    full = [True]

    def on_a_full_disk(path: Path, text: str) -> None:
        if full:
            raise Fault(what="write a file", subject=str(path), cause="No space left on device (errno 28)")
        write_file(path, text)

    monkeypatch.setattr(module, "write_file", on_a_full_disk)
    service = Service(bench.host.root, bench.options)
    service.refresh()
    bench.node("16").unlink()
    service.refresh()
    assert caplog.text.count("No space left on device") == 1
    full.clear()
    service.refresh()
    assert '"no-device-node"' in bench.options.state.read_text(encoding="utf-8")
    service.stop()
    assert not bench.options.state.exists()


def test_a_state_that_cannot_be_removed_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    StateFile(tmp_path / "state").remove()
    assert (tmp_path / "state").is_dir()


def test_what_a_killed_service_had_begun_to_write_goes(tmp_path: Path) -> None:
    for name in (".devices.json.x1y2z3_4", ".last-good.json.x1y2z3_4", "last-good.json", "devices.json"):
        (tmp_path / name).touch()
    StateFile(tmp_path / "devices.json").remove()
    assert [path.name for path in tmp_path.iterdir()] == ["last-good.json"]

"""Holders as modules ask for them: through the node's own program, against a stand-in kubelet."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.holders import PROGRAM, ask_holders, plugin_told
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev import cli
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.holding import Holding
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import PLUGIN_LOCK
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.podresources import PLUGINS, FakePodResources, answer, entry, store

GPU = "a.com/gpu"


@pytest.fixture(name="root")
def _root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Root:
    """Return a node on which the program is the code of this tree."""
    base = tmp_path_factory.mktemp("n")
    FakeHost(base)

    def program(command: Sequence[str], _timeout: float) -> Done:
        assert command[0] == PROGRAM
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(command[1:])
        return Done(code, out.getvalue(), err.getvalue())

    made = Root(base=base, runner=program)
    monkeypatch.setattr(cli, "Root", lambda: made)
    return made


@pytest.fixture(name="kubelet")
def _kubelet(root: Root) -> Iterator[FakePodResources]:
    kubelet = FakePodResources(root.base, pods=[("default/vm-a", "compute", GPU, ["16"])])
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.mark.usefixtures("kubelet")
def test_what_the_kubelet_says_reaches_the_module(root: Root) -> None:
    store(root.at(PLUGINS), entry(GPU, ["16"], answer({"PCI_RESOURCE_A_COM_GPU": "0000:01:00.0"}, nodes=["/dev/vfio/16"])))
    held = Holding(GPU, "16", "default", "vm-a", "compute", ("0000:01:00.0",), ("/dev/vfio/16",))
    assert ask_holders(root).holdings == (held,)
    assert ask_holders(root).fault == ""


def test_a_kubelet_that_does_not_answer_is_told_in_its_words(kubelet: FakePodResources, root: Root) -> None:
    kubelet.refuses = True
    assert "RESOURCE_EXHAUSTED: too many calls" in ask_holders(root).fault
    assert "/other/pod-resources/kubelet.sock: no such socket" in ask_holders(root, "/other").fault


def answering(root: Root, done: Any) -> Root:
    def run(_command: Sequence[str], _timeout: float) -> Done:
        if isinstance(done, Exception):
            raise done
        return Done(*done)

    return Root(base=root.base, runner=run)


@pytest.mark.parametrize(
    ("done", "fault"),
    [
        (Absent(what="run a command", subject=PROGRAM, cause="no such program on this machine"), "no such program"),
        (Timeout(what="run a command", subject=PROGRAM, cause="no answer within 60 s"), "no answer within 60 s"),
        ((2, "", "usage\nhostdev: error: invalid choice"), "invalid choice"),
        ((1, "", ""), "exit code 1"),
        ((0, "", ""), "its answer is none"),
        ((0, "[]", ""), "its answer is none"),
        ((0, '{"holders": [7]}', ""), "its answer is none"),
    ],
)
def test_who_cannot_be_asked_is_no_empty_list(root: Root, done: Any, fault: str) -> None:
    asked = ask_holders(answering(root, done))
    assert (asked.holdings, fault in asked.fault) == ((), True)


@pytest.mark.usefixtures("kubelet")
def test_the_plugins_state_is_told_with_holders(root: Root) -> None:
    assert plugin_told(root) == {"running": False, "holders_fault": "", "resources": [], "units": [], "skipped": [], "renumbered": []}
    units = [{"resource": GPU, "id": "16"}, {"resource": GPU, "id": "17"}, {"resource": GPU, "id": "kvm0", "count": 9}]
    root.at("/run/vfio-passthrough").mkdir()
    root.at("/run/vfio-passthrough/devices.json").write_text(json.dumps({"units": units, "skipped": [{"reason": "x"}]}), encoding="utf-8")
    with alone(root.at(PLUGIN_LOCK)):
        told, unasked = plugin_told(root), plugin_told(root, "/other")
    pod = [{"namespace": "default", "pod": "vm-a", "container": "compute"}]
    assert (told["running"], [one["holders"] for one in told["units"]], told["skipped"]) == (True, [pod, [], pod], [{"reason": "x"}])
    assert (unasked["units"][0]["holders"], "no such socket" in unasked["holders_fault"]) == (None, True)

"""The module node_daemonset: what it returns, and when it waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue import node_daemonset
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Timeout
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.daemonsets import FakeDaemonSets, definition, workload


@pytest.fixture(name="cluster")
def _cluster(monkeypatch: pytest.MonkeyPatch) -> FakeDaemonSets:
    cluster = FakeDaemonSets("a")
    monkeypatch.setattr(node_daemonset, "api_of", lambda _given: None)
    monkeypatch.setattr(node_daemonset, "DaemonSets", lambda _api: cluster)
    return cluster


def run(*, check: bool = False, **options: Any) -> dict[str, Any]:
    defaults = {name: option.get("default") for name, option in node_daemonset.SPEC.items()}
    given = {"definition": definition(), "node": "a", "wait_timeout": 0, **options}
    return node_daemonset.work(SimpleNamespace(params={**defaults, **given}, check_mode=check), Root())


def test_a_run_tells_what_it_changed(cluster: FakeDaemonSets) -> None:
    told = run()
    assert (told["changed"], told["template"]) == (True, workload().digest)
    assert (told["diff"]["before"]["on_node"], told["diff"]["after"]["on_node"]) == (False, True)
    assert not run()["changed"]
    assert (run(state="absent")["changed"], cluster.stored) == (True, None)
    assert not run(state="absent")["changed"]


def test_a_check_run_tells_the_same_and_neither_writes_nor_waits(cluster: FakeDaemonSets) -> None:
    cluster.slow = True
    assert run(check=True)["changed"]
    assert cluster.did == []


def test_who_does_not_wait_is_not_told_what_comes_of_it(cluster: FakeDaemonSets) -> None:
    cluster.ready = False
    assert run(wait=False)["changed"]
    with pytest.raises(Timeout, match="ImagePullBackOff"):
        run()

"""The module virtual_machine: what it asks of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue import virtual_machine
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.cluster import FakeCluster
from ansible_collections.vfio.passthrough.tests.fakes.manifests import with_gpus


def run(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """Do the module's work for an account that may not list nodes."""
    cluster = FakeCluster()
    cluster.refuse_lists = True
    monkeypatch.setattr(virtual_machine, "api_of", lambda _given: cluster)
    defaults = {name: option.get("default") for name, option in virtual_machine.SPEC.items()}
    given = {"definition": with_gpus("g"), "launcher_image": "launcher:1", "wait": False, **options}
    return virtual_machine.work(SimpleNamespace(params={**defaults, **given}, check_mode=False), Root())


@pytest.mark.parametrize("emulation", ["always", "never"])
def test_nodes_need_not_be_listed_where_emulation_is_given(monkeypatch: pytest.MonkeyPatch, emulation: str) -> None:
    result = run(monkeypatch, launcher_emulation=emulation)
    assert (result["changed"], result["phase"]) == (True, "Pending")
    assert "may not list nodes" in result["message"]


def test_nor_to_delete_a_vm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, state="absent")["phase"] == "Absent"


def test_auto_cannot_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="cannot list nodes"):
        run(monkeypatch)

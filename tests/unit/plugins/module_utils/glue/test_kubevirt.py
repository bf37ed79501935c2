"""The module kubevirt_permitted_devices: what it makes of its options, and what it answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue import kubevirt as glue
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.kubevirt import FakeKubeVirt, kubevirt

GPU = "nvidia.com/A10"
DECLARED = [{"devices": [{"resource": GPU, "select": {"id": "10de:2236"}}], "permitted_host_devices": {}}]
ENTRY = {"pciVendorSelector": "10de:2236", "resourceName": GPU, "externalResourceProvider": True}


class Ran:
    """The module, run against one object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cr: dict[str, Any] | None) -> None:
        self.objects = FakeKubeVirt(cr)
        self.warnings: list[str] = []
        monkeypatch.setattr(glue, "api_of", lambda _given: None)
        monkeypatch.setattr(glue, "KubeVirts", lambda _api, _namespace, _name: self.objects)

    def __call__(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        defaults = {name: option.get("default") for name, option in glue.SPEC.items()}
        module = SimpleNamespace(params={**defaults, **options}, check_mode=check, warn=self.warnings.append)
        return glue.work(module, Root())


@pytest.fixture(name="ran")
def _ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(monkeypatch, kubevirt({}))


def test_there_and_back(ran: Ran) -> None:
    looked = ran(declarations=DECLARED, check=True)
    first = ran(declarations=DECLARED)
    assert first == looked
    assert (first["changed"], first["entries"], first["feature_gate_added"]) == (True, {"pciHostDevices": [ENTRY]}, True)
    assert first["diff"]["before"] == {}
    assert first["diff"]["after"]["permittedHostDevices"] == {"pciHostDevices": [ENTRY]}
    again = ran(declarations=DECLARED)
    assert (again["changed"], again["entries"], again["diff"]) == (False, first["entries"], {})
    back = ran(state="absent")
    assert (back["changed"], back["entries"], back["feature_gate_added"]) == (True, {}, False)
    assert ran.objects.read()["spec"] == {"configuration": {}}
    assert ran(state="absent")["changed"] is False


def test_warnings_are_ansibles(ran: Ran) -> None:
    ran(declarations=DECLARED)
    assert ["had no permittedHostDevices" in text for text in ran.warnings] == [True]


def test_ids_come_from_the_nodes_where_the_declaration_has_none(ran: Ran) -> None:
    functions = [{"resource": GPU, "id": "10de:2236", "part": "selected", "address": "0000:01:00.0"}]
    declared = [{"devices": [{"resource": GPU, "select": {"slot": "3"}}], "permitted_host_devices": {}}]
    assert ran(declarations=declared, functions=functions)["entries"] == {"pciHostDevices": [ENTRY]}


def test_without_purge_what_is_not_declared_here_stays(ran: Ran) -> None:
    ran(declarations=DECLARED)
    assert ran(purge=False)["changed"] is False
    assert ran()["entries"] == {}


def test_nothing_is_taken_out_where_kubevirt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, None)
    done = ran(state="absent")
    assert (done["changed"], done["notes"]) == (False, ["nothing to take out: there is no such KubeVirt object"])
    with pytest.raises(Absent):
        ran(declarations=DECLARED)


def test_a_wrong_declaration_is_refused_by_its_position(ran: Ran) -> None:
    with pytest.raises(Refused, match=r"declarations\[1\]\.devices\[0\]"):
        ran(declarations=[*DECLARED, {"devices": [{"resource": GPU}], "permitted_host_devices": {}}])

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
DEVICES = [{"resource": GPU, "select": {"id": "10de:2236"}}]
ENTRY = {"pciVendorSelector": "10de:2236", "resourceName": GPU, "externalResourceProvider": True}


class Ran:
    """The module, run against one object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cr: dict[str, Any] | None) -> None:
        self.objects = FakeKubeVirt(cr)
        self.warnings: list[str] = []
        monkeypatch.setattr(glue, "Api", lambda _kubeconfig, _context: None)
        monkeypatch.setattr(glue, "KubeVirts", lambda _api, _namespace, _name: self.objects)

    def __call__(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        defaults = {name: option.get("default") for name, option in glue.SPEC.items()}
        module = SimpleNamespace(params={**defaults, **options}, check_mode=check, warn=self.warnings.append)
        return glue.work(module, Root())


@pytest.fixture(name="ran")
def _ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(monkeypatch, kubevirt({}))


def test_there_and_back(ran: Ran) -> None:
    looked = ran(devices=DEVICES, check=True)
    first = ran(devices=DEVICES)
    assert first == looked
    assert (first["changed"], first["entries"], first["feature_gate_added"]) == (True, {"pciHostDevices": [ENTRY]}, True)
    assert first["diff"]["before"] == {}
    assert first["diff"]["after"]["permittedHostDevices"] == {"pciHostDevices": [ENTRY]}
    again = ran(devices=DEVICES)
    assert (again["changed"], again["entries"], again["diff"]) == (False, first["entries"], {})
    back = ran(state="absent")
    assert (back["changed"], back["entries"], back["feature_gate_added"]) == (True, {}, False)
    assert ran.objects.read()["spec"] == {"configuration": {}}
    assert ran(state="absent")["changed"] is False


def test_warnings_are_ansibles(ran: Ran) -> None:
    ran(devices=DEVICES)
    assert ["had no permittedHostDevices" in text for text in ran.warnings] == [True]


def test_ids_come_from_the_nodes_where_the_declaration_has_none(ran: Ran) -> None:
    functions = [{"resource": GPU, "id": "10de:2236", "part": "selected", "address": "0000:01:00.0"}]
    assert ran(devices=[{"resource": GPU, "select": {"slot": "3"}}], functions=functions)["entries"] == {"pciHostDevices": [ENTRY]}


def test_nothing_is_taken_out_where_kubevirt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, None)
    done = ran(state="absent")
    assert (done["changed"], done["notes"]) == (False, ["nothing to take out: there is no such KubeVirt object"])
    with pytest.raises(Absent):
        ran(devices=DEVICES)


def test_a_wrong_declaration_is_refused_by_its_position(ran: Ran) -> None:
    with pytest.raises(Refused, match=r"devices\[0\]"):
        ran(devices=[{"resource": GPU}])

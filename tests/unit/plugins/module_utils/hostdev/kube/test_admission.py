"""Admission: each refusal names the field as KubeVirt does, and the nearest value that would do."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.admission import Policy, admit, refuse_inadmissible
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.gates import open_gates
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

GRACE = {"gpus": [{"name": "g", "deviceName": "nvidia.com/gb"}]}
SELECTORS = {"nvidia.com/gb": "10DE:2941"}


def vmi(domain: dict[str, Any], **annotations: str) -> VirtualMachineInstance:
    return VirtualMachineInstance(metadata=Metadata(name="guest", annotations=annotations), spec=spec_of({"domain": domain}))


def displays(*ramfb: dict[str, Any]) -> dict[str, Any]:
    shown = [{"name": f"g{number}", "deviceName": "x.io/y", "virtualGPUOptions": {"display": one}} for number, one in enumerate(ramfb)]
    return {"devices": {"gpus": shown}}


@pytest.mark.parametrize(
    ("domain", "field", "nearest"),
    [
        ({"devices": {"hostDevices": []}}, "spec.HostDevices", "add HostDevices to launcher_feature_gates"),
        (displays({}, {"ramFB": {"enabled": True}}), "spec.GPUs", "set virtualGPUOptions.display.ramFB.enabled: false on all but g0"),
        ({"memory": {"reservedOverhead": {}}}, "spec.domain.memory.reservedOverhead", "add ReservedOverheadMemlock"),
        (
            {"cpu": {"isolateEmulatorThread": True}},
            "spec.domain.cpu.isolateEmulatorThread",
            "set cpu.dedicatedCpuPlacement: true",
        ),
        ({"memory": {"guest": "3Gi", "hugepages": {"pageSize": "2Gi"}}}, "spec.domain.memory.guest", "the nearest that is: 2147483648"),
        ({"memory": {"guest": "1Mi", "hugepages": {"pageSize": "2Mi"}}}, "spec.domain.memory.guest", "the nearest that is: 2097152"),
        ({"memory": {"guest": "3Gi", "hugepages": {"pageSize": "3Mi"}}}, "spec.domain.memory.hugepages.pageSize", "as 2Mi or 1Gi"),
    ],
)
def test_refused_with_the_nearest_value(domain: dict[str, Any], field: str, nearest: str) -> None:
    (cause,) = admit(vmi(domain), Policy())
    assert cause.field == field
    assert nearest in cause.message


@pytest.mark.parametrize(
    "domain",
    [
        displays({}, {"enabled": False}),
        displays({}, {"ramFB": {"enabled": False}}),
        {"memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}}},
        {"cpu": {"dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
        {"devices": GRACE},
    ],
)
def test_admitted(domain: dict[str, Any]) -> None:
    assert admit(vmi(domain), Policy()) == ()


def test_ramfb_objects_that_say_nothing_count_as_on() -> None:
    (cause,) = admit(vmi(displays({"ramFB": {}}, {"ramFB": {}})), Policy())
    assert "g0, g1" in cause.message


def test_the_gate_lets_host_devices_through() -> None:
    assert admit(vmi({"devices": {"hostDevices": []}}), Policy(gates=open_gates(["HostDevices"]))) == ()


def test_a_grace_gpu_on_another_machine_hears_of_all_that_it_lacks() -> None:
    policy = Policy(gates=open_gates(["GraceIOVirtualization"]), selectors=SELECTORS)
    marked = vmi({"devices": GRACE}, **{"kubevirt.io/placePCIDevicesOnRootComplex": "true"})
    assert [cause.field for cause in admit(marked, policy)] == [
        "spec.architecture",
        "spec.domain.machine.type",
        "spec.domain.cpu.dedicatedCpuPlacement",
        "spec.domain.devices",
        "spec.domain.devices",
        "metadata.annotations[kubevirt.io/placePCIDevicesOnRootComplex]",
    ]


def test_without_its_gate_a_grace_gpu_is_refused_below_the_path_of_a_template() -> None:
    with pytest.raises(Refused) as caught:
        refuse_inadmissible(vmi({"devices": GRACE}), Policy(selectors=SELECTORS), "spec.template.spec", "spec.template.metadata")
    assert caught.value.subject == "guest"
    assert "spec.template.spec.domain.devices.gpus[0].deviceName: is a Grace GPU: feature gate GraceIOVirtualization" in caught.value.cause
    refuse_inadmissible(vmi({}), Policy())

"""Devices that a guest may not ask for: all are named, with what comes nearest."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.permitted import refuse_unpermitted
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.fakes.manifests import RESOURCE, with_gpus

SPEC: Spec = parse_manifest(with_gpus("one", host_devices=("two",))).instance().spec


def refusal(*permitted: str) -> Refused:
    with pytest.raises(Refused) as caught:
        refuse_unpermitted(SPEC, permitted)
    return caught.value


def test_each_device_is_named_by_its_path_and_in_kubevirts_words() -> None:
    fault = refusal("intel.com/gpu")
    assert fault.subject == "spec.domain.devices.gpus[0], spec.domain.devices.hostDevices[0]"
    said = f"{{}} {RESOURCE} is not permitted in permittedHostDevices configuration"
    assert fault.cause == f"{said.format('GPU')} {said.format('HostDevice')}"


def test_a_slip_of_the_pen_is_answered_with_the_name_that_was_meant() -> None:
    assert refusal("intel.com/gpu", "nvidia.com/AD102_", "nvidia.com/GH100").hint.endswith(
        "nearest to nvidia.com/AD102 is nvidia.com/AD102_"
    )


def test_where_nothing_is_permitted_it_says_so() -> None:
    assert refusal().hint == "nothing is permitted"


def test_without_a_list_and_with_the_name_in_it_all_pass() -> None:
    refuse_unpermitted(SPEC, None)
    refuse_unpermitted(SPEC, ["intel.com/gpu", RESOURCE])

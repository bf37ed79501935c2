"""Networks and interfaces: what does not go together is refused by its path."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.network_checks import network_problems
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of

POD = {"name": "a", "pod": {}}
MULTUS = {"name": "b", "multus": {"networkName": "x"}}
CARD: dict[str, Any] = {"name": "a", "masquerade": {}}
FUNCTION: dict[str, Any] = {"name": "b", "sriov": {}}


def problems(networks: list[Any], interfaces: list[Any], **devices: Any) -> list[str]:
    spec = spec_of({"networks": networks, "domain": {"devices": {"interfaces": interfaces, **devices}}})
    return [f"{path}: {cause}" for path, cause in network_problems(spec, "spec")]


@pytest.mark.parametrize("way", ["masquerade", "passt", "passtBinding"])
def test_a_user_network_beside_a_virtual_function(way: str) -> None:
    assert problems([POD, MULTUS], [{"name": "a", way: {}}, FUNCTION]) == []


@pytest.mark.parametrize(
    ("networks", "interfaces", "said"),
    [
        ([{"name": "a"}], [CARD], "spec.networks[0]: exactly one of pod, multus and resourceClaim has to be there, are 0"),
        ([{**POD, "multus": {"networkName": "x"}}], [CARD], "spec.networks[0]: exactly one of"),
        ([POD, MULTUS], [CARD], "spec.networks[1].name: 'b' is the name of no interface"),
        ([POD], [CARD, FUNCTION], "spec.domain.devices.interfaces[1].name: 'b' is the name of no network"),
        (
            [{"name": "nett", "pod": {}}],
            [{"name": "net", "masquerade": {}}],
            "'net' is the name of no network; nearest: nett",
        ),
        ([POD], [{"name": "a"}], "interfaces[0]: exactly one of masquerade, passt and sriov has to be there, are none"),
        (
            [POD],
            [{**CARD, "sriov": {}}],
            "exactly one of masquerade, passt and sriov has to be there, are masquerade, sriov",
        ),
        ([POD], [{"name": "a", "sriov": {}}], "interfaces[0].sriov: a virtual function does not come from the pod's network"),
        ([MULTUS], [{"name": "b", "masquerade": {}}], "interfaces[0].masquerade: serves the pod's network alone; use sriov"),
        ([MULTUS], [{**FUNCTION, "ports": [{"port": 80}]}], "interfaces[0].ports: ports of the pod do not lead to a virtual function"),
        ([POD, POD], [CARD], "spec.networks[1].name: 'a' is also the name of spec.networks[0]"),
        ([POD], [CARD, CARD], "interfaces[1].name: 'a' is also the name of spec.domain.devices.interfaces[0]"),
        (
            [POD, {"name": "b", "multus": {"networkName": "x", "default": True}}],
            [CARD, FUNCTION],
            "spec.networks[1]: is the pod's network, as spec.networks[0] is; there is one",
        ),
    ],
)
def test_refused(networks: list[Any], interfaces: list[Any], said: str) -> None:
    assert any(said in problem for problem in problems(networks, interfaces)), problems(networks, interfaces)


def test_a_boot_order_is_one_of_disks_and_interfaces_together() -> None:
    cards = [{**CARD, "bootOrder": 1}, {**FUNCTION, "bootOrder": 2}]
    disks = [{"name": "d", "bootOrder": 2}]
    assert problems([POD, MULTUS], cards, disks=disks) == ["spec.domain.devices.interfaces[1].bootOrder: 2 is the order of disk 'd' too"]

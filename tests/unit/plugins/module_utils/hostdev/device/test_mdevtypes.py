"""The types that a node wants: spellings, selectors, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.mdev import Mdev
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.mdevtypes import parse_mdev_configuration

ANY = {"nodeSelector": {}, "mediatedDeviceTypes": ["nvidia-223"]}


def wanted(block: Any, **labels: str) -> tuple[str, ...]:
    return parse_mdev_configuration(block).wanted(labels)


def test_without_the_block_nothing_is_wanted() -> None:
    assert wanted(None) == wanted({}) == ()


def test_the_former_spelling_counts_only_where_the_other_has_nothing() -> None:
    assert wanted({"mediatedDevicesTypes": ["a"]}) == ("a",)
    assert wanted({"mediatedDevicesTypes": ["a"], "mediatedDeviceTypes": ["b"]}) == ("b",)
    node = {"nodeSelector": {}, "mediatedDevicesTypes": ["c"]}
    assert wanted({"mediatedDeviceTypes": ["b"], "nodeMediatedDeviceTypes": [node]}) == ("c",)


def test_an_empty_selector_means_every_node() -> None:
    assert wanted({"mediatedDeviceTypes": ["b"], "nodeMediatedDeviceTypes": [ANY]}) == ("nvidia-223",)


def test_a_matching_entry_without_types_leaves_the_default() -> None:
    assert wanted({"mediatedDeviceTypes": ["b"], "nodeMediatedDeviceTypes": [{"nodeSelector": {}}]}) == ("b",)


def test_all_pairs_of_a_selector_have_to_match() -> None:
    node = {"nodeSelector": {"zone": "a", "gpu": ""}, "mediatedDeviceTypes": ["x"]}
    block = {"mediatedDeviceTypes": ["b"], "nodeMediatedDeviceTypes": [node]}
    assert wanted(block, zone="a", gpu="") == ("x",)
    assert wanted(block, zone="a") == ("b",)


def test_a_type_in_two_spellings_is_wanted_once() -> None:
    assert wanted({"mediatedDeviceTypes": [" GRID T4-1B", "GRID_T4-1B", "GRID T4-2B"]}) == ("GRID T4-1B", "GRID T4-2B")


@pytest.mark.parametrize("text", ["GRID T4-1B", "GRID_T4-1B", " GRID T4-1B ", "nvidia-222"])
def test_a_name_with_spaces_and_an_id_mean_the_type(text: str) -> None:
    (one,) = wanted({"mediatedDeviceTypes": [text]})
    assert Mdev("uuid", "nvidia-222", "GRID T4-1B\n", "0000:65:00.0").is_of(one)
    assert not Mdev("uuid", "nvidia-223", "GRID T4-2B\n", "0000:65:00.0").is_of(one)


@pytest.mark.parametrize(
    ("block", "position"),
    [
        ([1], "mediatedDevicesConfiguration"),
        ({"types": []}, "mediatedDevicesConfiguration.types"),
        ({"enabled": "yes"}, "mediatedDevicesConfiguration.enabled"),
        ({"mediatedDeviceTypes": "nvidia-222"}, "mediatedDevicesConfiguration.mediatedDeviceTypes"),
        ({"mediatedDeviceTypes": ["a", 222]}, "mediatedDevicesConfiguration.mediatedDeviceTypes[1]"),
        ({"nodeMediatedDeviceTypes": [ANY, {}]}, "mediatedDevicesConfiguration.nodeMediatedDeviceTypes[1].nodeSelector"),
        (
            {"nodeMediatedDeviceTypes": [{"nodeSelector": {"a": 1}}]},
            "mediatedDevicesConfiguration.nodeMediatedDeviceTypes[0].nodeSelector.a",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_position(block: Any, position: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_mdev_configuration(block)
    assert caught.value.subject.startswith(position)

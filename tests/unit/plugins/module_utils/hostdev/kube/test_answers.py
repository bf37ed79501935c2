from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import answers

RESOURCE = "example.com/gpu"


def offer(
    id: str, address: str, *, numa: int | None = 0, missing: bool = False, companions: tuple[str, ...] = (), trouble: str = "", **more: Any
) -> Offer:
    node = f"/dev/vfio/{id}"
    card = address.rpartition(".")[0]
    present = ("/dev/vfio/vfio",) if missing else ("/dev/vfio/vfio", node)
    return Offer(
        "pci", RESOURCE, id, address, (address,), companions, (node,), present=present, numa_node=numa, card=card, trouble=trouble, **more
    )


def by_id(*offers: Offer) -> dict[str, Offer]:
    return {one.id: one for one in offers}


def test_a_device_without_numa_node_has_no_topology() -> None:
    assert answers.device(offer("7", "0000:01:00.0", numa=None)) == {"ID": "7", "health": "Healthy"}
    assert answers.device(offer("7", "0000:01:00.0", numa=0))["topology"] == {"nodes": [{"ID": 0}]}


def test_addresses_stand_in_request_order_and_the_control_node_once() -> None:
    offers = by_id(offer("9", "0000:09:00.0"), offer("7", "0000:07:00.0"))
    made = answers.container_answer(RESOURCE, ["9", "7"], offers, "/run/g", prefix="/host")
    assert made["envs"] == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:09:00.0,0000:07:00.0"}
    assert [one["container_path"] for one in made["devices"]] == ["/dev/vfio/vfio", "/dev/vfio/9", "/dev/vfio/7"]
    assert made["devices"][1]["host_path"] == "/host/dev/vfio/9"
    assert [one["host_path"] for one in made["mounts"]] == ["/run/g/EXAMPLE_COM_GPU/9", "/run/g/EXAMPLE_COM_GPU/7"]
    assert all(one["container_path"] == one["host_path"] and one["read_only"] for one in made["mounts"])


def test_the_control_node_is_given_only_where_the_host_has_it() -> None:
    """A container runtime starts no container with a node that is not there."""
    without = replace(offer("7", "0000:07:00.0"), present=("/dev/vfio/7",))
    made = answers.container_answer(RESOURCE, ["7"], by_id(without), "/run/g")
    assert [one["container_path"] for one in made["devices"]] == ["/dev/vfio/7"]


def test_companions_have_a_variable_of_their_own_only_when_declared() -> None:
    offers = by_id(offer("7", "0000:07:00.0", companions=("0000:07:00.1",)), offer("9", "0000:09:00.0", companions=("0000:09:00.1",)))
    made = answers.container_answer(RESOURCE, ["7", "9"], offers, "/run/g")
    assert made["envs"]["HOSTDEV_COMPANIONS_EXAMPLE_COM_GPU"] == "0000:07:00.0=0000:07:00.1,0000:09:00.0=0000:09:00.1"
    assert list(answers.container_answer(RESOURCE, ["7"], by_id(offer("7", "0000:07:00.0")), "/g")["envs"]) == [
        "PCI_RESOURCE_EXAMPLE_COM_GPU"
    ]


def test_each_container_gets_its_own_devices() -> None:
    offers = by_id(offer("9", "0000:09:00.0"), offer("7", "0000:07:00.0"))
    one, two = answers.allocate(RESOURCE, [["9"], ["7"]], offers, "/run/g")
    assert (one["envs"], two["envs"]) == (
        {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:09:00.0"},
        {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:07:00.0"},
    )


def test_an_unknown_id_says_which_and_what_there_is() -> None:
    with pytest.raises(Absent, match=r"example.com/gpu nope: .*ids: 7"):
        answers.container_answer(RESOURCE, ["7", "nope"], by_id(offer("7", "0000:07:00.0")), "/g")


def test_a_missing_node_and_a_blocking_function_are_named() -> None:
    with pytest.raises(Refused, match=r"/dev/vfio/7 does not exist"):
        answers.container_answer(RESOURCE, ["7"], by_id(offer("7", "0000:07:00.0", missing=True)), "/g")
    held = offer("7", "0000:01:00.0", trouble="IOMMU group 7 is not viable: held by drivers of the host: 0000:01:00.1 snd_hda_intel")
    with pytest.raises(Refused, match=r"0000:01:00\.1 snd_hda_intel"):
        answers.container_answer(RESOURCE, ["7"], by_id(held), "/g")


def test_a_refusal_fits_a_pods_status() -> None:
    assert len(answers.short(Fault(what="x" * 400, subject="s", cause="c"))) == 300


@pytest.mark.parametrize(
    ("included", "size", "expected"),
    [
        ([], 2, ["a", "b"]),  # one card that is enough
        (["c"], 2, ["c", "a"]),  # beside what is fixed: its NUMA node
        ([], 1, ["d"]),  # the smallest node, so that the larger one stays whole
        ([], 9, ["a", "b", "c", "d"]),  # fewer than asked for is no error
    ],
)
def test_preference(included: list[str], size: int, expected: list[str]) -> None:
    offers = by_id(
        offer("a", "0000:01:00.0", numa=0),
        offer("b", "0000:01:00.2", numa=0),
        offer("c", "0000:02:00.0", numa=0),
        offer("d", "0000:81:00.0", numa=1),
    )
    assert answers.prefer(["a", "b", "c", "d", "ghost"], included, size, offers) == expected


def test_beside_what_is_fixed_comes_the_same_pcie_root() -> None:
    """B8: the kubelet's own choice knows nothing of cards, nodes and roots."""
    roots = {"a": "0000:00:01.0", "b": "0000:00:02.0", "c": "0000:00:02.0", "d": "0000:00:01.0"}
    offers = by_id(
        *(offer(one, f"0000:0{number}:00.0", upstream=("pci0000:00", root, one)) for number, (one, root) in enumerate(roots.items()))
    )
    assert answers.prefer(["a", "b", "c"], ["d"], 2, offers) == ["d", "a"]
    assert answers.prefer(["a", "b", "c"], ["b"], 2, offers) == ["b", "c"]

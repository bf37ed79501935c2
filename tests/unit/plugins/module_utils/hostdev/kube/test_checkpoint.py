"""The kubelet's store of Allocate's answers: read whatever is in it, and compared with what the ids mean now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import MDEV, NODE, PCI, USB
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.checkpoint import Stored, read_stored, renumbered
from ansible_collections.vfio.passthrough.tests.fakes.podresources import answer, entry, store

GPU, VARIABLE = "a.com/gpu", "PCI_RESOURCE_A_COM_GPU"
A, B = "0000:01:00.0", "0000:02:00.0"


def offer(number: str, *values: str, resource: str = GPU, kind: str = PCI, **more: Any) -> Offer:
    return Offer(kind, resource, number, "+".join(values), values, present=("/dev/vfio/x",), **more)


def stored(ids: str, values: str, resource: str = GPU, variable: str = VARIABLE) -> Stored:
    return Stored("uid-a", "compute", resource, frozenset(ids.split(",")), ((variable, values),))


def test_an_answer_is_read_whole(tmp_path: Path) -> None:
    given = answer({VARIABLE: f"{A},{B}", "HOME": "/"}, ["/run/g/16"], ["/dev/vfio/16"])
    store(tmp_path, {**entry(GPU, [], given), "DeviceIDs": {"0": ["16"], "1": ["17"]}})
    (one,) = read_stored(tmp_path) or ()
    assert (one.pod, one.container, one.resource, one.ids) == ("uid-a", "compute", GPU, frozenset({"16", "17"}))
    assert (one.values, one.mounts, one.nodes) == ((A, B), ("/run/g/16",), ("/dev/vfio/16",))


GOOD = entry(GPU, ["1"], "")


@pytest.mark.parametrize(
    "bad",
    [
        None,
        7,
        "text",
        [],
        {},
        {"ResourceName": GPU},
        {**GOOD, "AllocResp": "%%%"},
        {**GOOD, "AllocResp": "AAAA"},
        {**GOOD, "AllocResp": 7},
    ],
)
def test_a_broken_entry_hides_no_other(tmp_path: Path, bad: Any) -> None:
    store(tmp_path, bad, GOOD)
    assert [one.ids for one in read_stored(tmp_path) or ()] == [{"1"}]


def test_ids_without_numa_nodes_are_those_of_an_older_kubelet(tmp_path: Path) -> None:
    store(tmp_path, {**GOOD, "DeviceIDs": ["1", "2"], "AllocResp": None})
    assert [one.ids for one in read_stored(tmp_path) or ()] == [{"1", "2"}]


@pytest.mark.parametrize("ids", [None, 7, "16", {"0": 7}, {"0": None}])
def test_an_answer_counts_whatever_its_ids_look_like(tmp_path: Path, ids: Any) -> None:
    store(tmp_path, {**entry(GPU, [], answer({}, ["/run/g/16"])), "DeviceIDs": ids})
    assert [(one.ids, one.mounts) for one in read_stored(tmp_path) or ()] == [(frozenset(), ("/run/g/16",))]


@pytest.mark.parametrize(
    "text",
    ["", "{half", "[]", "null", "7", '{"Data": null}', '{"Data": {}}', '{"Data": []}', '{"Data": {"PodDeviceEntries": "x"}}', "\xff"],
)
def test_what_is_no_store_is_none(tmp_path: Path, text: str) -> None:
    store(tmp_path).write_text(text, encoding="latin-1")
    assert read_stored(tmp_path) is None


def test_no_file_is_none_and_an_empty_store_is_empty(tmp_path: Path) -> None:
    assert read_stored(tmp_path) is None
    store(tmp_path).write_text(json.dumps({"Data": {"PodDeviceEntries": None}}), encoding="utf-8")
    assert read_stored(tmp_path) == ()


def test_a_variable_that_is_not_of_our_form_names_nothing() -> None:
    assert stored("16", f"{A},,{B}").values == ()
    assert stored("16", A, variable="PCI_RESOURCE_OTHER").values == ()


def details(one: Stored, *offers: Offer) -> list[str]:
    return [text for found in renumbered([one], offers) for text in found.now]


def test_b30_a_group_that_another_boot_numbered_differently_is_found() -> None:
    moved = details(stored("16", A), offer("16", B), offer("17", A))
    assert moved == [f"{A} is unit 17 now", f"unit 16 is {B} now"]
    assert details(stored("16", A), offer("17", A)) == [f"{A} is unit 17 now"]
    assert details(stored("16", A), offer("16", B)) == [f"unit 16 is {B} now"]


def test_what_is_as_it_was_or_missing_is_not_renumbered() -> None:
    assert details(stored("16", A), offer("16", A), offer("17", B)) == []
    assert details(stored("16", A), offer("17", B)) == []
    # the request's order is not kept, so one answer's units may have changed places without anybody noticing
    assert details(stored("16,17", f"{A},{B}"), offer("16", B), offer("17", A)) == []


def test_only_answers_of_our_resources_count() -> None:
    assert details(stored("pci-1", A, "b.com/y", "PCI_RESOURCE_B_COM_Y"), offer("16", A)) == []


@pytest.mark.parametrize(
    ("kind", "variable", "before", "now"),
    [
        (MDEV, "MDEV_PCI_RESOURCE_A_COM_GPU", ("30", "53764d0e-85a0-42b4-af5c-2046b460b1dc"), "31"),
        (PCI, VARIABLE, ("16", A), "17"),
    ],
)
def test_every_kind_with_group_numbers_is_compared(kind: str, variable: str, before: tuple[str, str], now: str) -> None:
    assert details(stored(*before, variable=variable), offer(now, before[1], kind=kind)) == [f"{before[1]} is unit {now} now"]


def test_a_usb_device_that_was_plugged_in_again_has_another_number() -> None:
    again = offer("1-4.2", "1:7", resource="a.com/key", kind=USB)
    assert details(stored("1-4.2", "1:5", "a.com/key", "USB_RESOURCE_A_COM_KEY"), again) == ["unit 1-4.2 is 1:7 now"]


def test_a_usb_number_that_another_device_has_now_is_that_ones() -> None:
    lost = Offer(USB, "a.com/key", "1-4.2", "1-4.2", ("1:5",), trouble="unplugged")
    other = offer("1-3", "1:5", resource="a.com/key", kind=USB)
    one = stored("1-4.2", "1:5", "a.com/key", "USB_RESOURCE_A_COM_KEY")
    assert details(one, lost, other) == details(one, other, lost) == ["1:5 is unit 1-3 now"]


def test_nodes_have_no_numbers() -> None:
    assert details(Stored("uid-a", "compute", "a.com/kvm", frozenset({"kvm0"})), Offer(NODE, "a.com/kvm", "kvm0", "/dev/kvm")) == []


def test_the_text_names_pod_units_and_mend() -> None:
    (found,) = renumbered([stored("16", A)], [offer("17", A)])
    assert found.text() == (
        f"{GPU}: renumbered: unit 16 was {A} when the pod got it; {A} is unit 17 now (pod uid-a, container compute) -> delete the pod: "
        "the kubelet gives this answer again at every start of its container, and to its successor a new one"
    )
    assert found.as_dict() == {
        "resource": GPU,
        "pod_uid": "uid-a",
        "container": "compute",
        "ids": ["16"],
        "values": [A],
        "detail": found.detail,
        "hint": found.hint,
    }

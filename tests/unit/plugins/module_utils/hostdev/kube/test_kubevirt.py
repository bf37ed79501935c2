"""Our entries merged into a KubeVirt object and taken out again."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import (
    ANNOTATION,
    GATE,
    Merge,
    excerpt,
    merge,
    permitted,
    strangers,
)
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import LISTS, PCI_LIST, USB_LIST, Permit, Wanted
from ansible_collections.vfio.passthrough.tests.fakes.kubevirt import kubevirt, merged
from hypothesis import given, settings
from hypothesis import strategies as st

GPU, NIC = "nvidia.com/A10", "example.com/nic"
NOTHING = Wanted()


def pci(device: str, resource: str, **more: Any) -> dict[str, Any]:
    return {"pciVendorSelector": device, "resourceName": resource, **more}


def ours(device: str, resource: str) -> Permit:
    return Permit(PCI_LIST, pci(device, resource, externalResourceProvider=True))


def want(*permits: Permit, by_nodes: str = "") -> Wanted:
    names = dict.fromkeys([*(one.resource for one in permits), *([by_nodes] if by_nodes else ())])
    return Wanted(permits, tuple(names), frozenset([by_nodes] if by_nodes else ()))


A10 = want(ours("10de:2236", GPU))
BOTH = want(ours("10de:2236", GPU), ours("8086:1572", NIC))


def after(done: Merge) -> dict[str, Any]:
    """Return the object as the API server has it after the patch; the version is the server's."""
    made: dict[str, Any] = merged(done.before, done.patch)
    assert made == done.after
    return made


def pcis(cr: dict[str, Any]) -> list[Any]:
    return [one.value for one in permitted(cr)[PCI_LIST]]


BEFORE: list[dict[str, Any] | None] = [
    None,
    {},
    {"permittedHostDevices": {}},
    {"permittedHostDevices": {"pciHostDevices": []}},
    {"permittedHostDevices": {"pciHostDevices": [pci("8086:1572", "a.com/other")], "usb": []}},
    {"developerConfiguration": {}},
    {"developerConfiguration": {"featureGates": []}},
    {"developerConfiguration": {"featureGates": ["Snapshot", GATE], "logVerbosity": {"virtAPI": 3}}},
    {"developerConfiguration": {"featureGates": ["Snapshot"], "disabledFeatureGates": [GATE]}},
    {"network": {"defaultNetworkInterface": "bridge"}},
]


@pytest.mark.parametrize("configuration", BEFORE)
def test_entries_come_once_and_go_without_a_trace(configuration: dict[str, Any] | None) -> None:
    before = kubevirt(configuration, annotations={"kept": "yes"})
    first = merge(before, A10)
    there = after(first)
    assert A10.permits[0].value in pcis(there)
    assert merge(there, A10).patch == {}
    back = merge(there, NOTHING)
    assert after(back) == before
    assert merge(after(back), NOTHING).patch == {}


def test_the_patch_holds_the_version_and_nothing_that_stays() -> None:
    before = kubevirt({"permittedHostDevices": {"pciHostDevices": [pci("1:2", "a.com/x")], "usb": []}, "network": {}}, resourceVersion="42")
    patch = merge(before, A10).patch
    assert patch["metadata"]["resourceVersion"] == "42"
    assert patch["spec"]["configuration"] == {
        "permittedHostDevices": {"pciHostDevices": [pci("1:2", "a.com/x"), A10.permits[0].value]},
        "developerConfiguration": {"featureGates": [GATE]},
    }


def test_what_is_not_wanted_any_more_goes_and_the_rest_stays_ours() -> None:
    there = after(merge(kubevirt(), BOTH))
    less = after(merge(there, A10))
    assert pcis(less) == [A10.permits[0].value]
    assert after(merge(less, NOTHING)) == kubevirt()


def test_what_other_hosts_may_declare_stays() -> None:
    there = after(merge(kubevirt(), BOTH))
    some = Wanted(A10.permits, A10.resources, complete=False)
    assert merge(there, some).patch == {}
    assert merge(there, Wanted(complete=False)).patch == {}
    assert pcis(after(merge(after(merge(there, NOTHING)), some))) == [A10.permits[0].value]


def test_ids_that_other_nodes_told_stay_until_the_resource_is_undeclared() -> None:
    first = after(merge(kubevirt(), want(ours("10de:2236", GPU), by_nodes=GPU)))
    second = after(merge(first, want(ours("10de:2237", GPU), by_nodes=GPU)))
    assert [value["pciVendorSelector"] for value in pcis(second)] == ["10de:2236", "10de:2237"]
    unseen = merge(second, want(by_nodes=GPU))
    assert (unseen.patch, unseen.warnings) == ({}, ())
    assert pcis(after(merge(second, NOTHING))) == []


def test_an_administrators_entry_is_kept_and_never_ours() -> None:
    theirs = pci("10DE:2236", GPU, externalResourceProvider=True)
    before = kubevirt({"permittedHostDevices": {"pciHostDevices": [theirs]}})
    done = merge(before, A10)
    assert (done.added, done.memory.entries) == ((), ())
    assert done.notes == (f"pciHostDevices 10de:2236 ({GPU}) is the administrator's and stays so",)
    assert pcis(after(merge(after(done), NOTHING))) == [theirs]


@pytest.mark.parametrize("resource", [GPU, "example.com/other"])
@pytest.mark.parametrize("more", [{}, {"externalResourceProvider": False}])
def test_an_entry_that_kubevirt_serves_itself_is_refused_with_both_names(resource: str, more: dict[str, Any]) -> None:
    before = kubevirt({"permittedHostDevices": {"pciHostDevices": [pci("10DE:2236", resource, **more)]}})
    with pytest.raises(Refused) as caught:
        merge(before, A10)
    assert f"10de:2236 ({GPU}) beside pciHostDevices 10de:2236 ({resource}) of KubeVirt kubevirt/kubevirt" in caught.value.subject
    # undoing refuses nothing
    assert merge(before, NOTHING).patch == {}


def test_one_shared_device_of_a_usb_bundle_is_enough_to_refuse() -> None:
    mouse, keyboard = {"vendor": "046d", "product": "c077"}, {"vendor": "046D", "product": "c31c"}
    desk = Permit(USB_LIST, {"resourceName": "a.com/desk", "selectors": [mouse, keyboard], "externalResourceProvider": True})
    before = kubevirt({"permittedHostDevices": {"usb": [{"resourceName": "b.com/mouse", "selectors": [mouse]}]}})
    with pytest.raises(Refused, match="b.com/mouse"):
        merge(before, want(desk))


def test_a_name_that_kubevirt_serves_with_other_devices_is_warned_about() -> None:
    done = merge(kubevirt({"permittedHostDevices": {"pciHostDevices": [pci("10de:1eb8", GPU)]}}), A10)
    assert ["served by KubeVirt under a name of ours" in text for text in done.warnings] == [True]


def test_an_edited_entry_is_theirs_from_then_on() -> None:
    there = after(merge(kubevirt(), BOTH))
    edited = pci("8086:1572", "example.com/renamed", externalResourceProvider=True)
    there["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"][1] = edited
    again = merge(there, A10)
    assert any("8086:1572 (example.com/nic) was changed or taken out by somebody" in note for note in again.notes)
    assert pcis(after(again)) == [A10.permits[0].value, edited]
    assert merge(after(again), A10).notes == ()
    assert pcis(after(merge(after(again), NOTHING))) == [edited]


def test_another_spelling_of_our_entry_is_theirs_and_enough() -> None:
    there = after(merge(kubevirt(), A10))
    edited = pci("10DE:2236", GPU, externalResourceProvider=True)
    there["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"] = [edited]
    again = after(merge(there, A10))
    assert pcis(again) == [edited]
    assert pcis(after(merge(again, NOTHING))) == [edited]


def test_our_entry_handed_to_kubevirt_is_refused() -> None:
    there = after(merge(kubevirt(), A10))
    there["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"][0]["externalResourceProvider"] = False
    with pytest.raises(Refused, match="virt-handler would hand out the same devices"):
        merge(there, A10)


def test_a_removed_entry_comes_back_while_it_is_declared() -> None:
    there = after(merge(kubevirt(), A10))
    there["spec"]["configuration"]["permittedHostDevices"] = {"pciHostDevices": []}
    again = merge(there, A10)
    assert pcis(after(again)) == [A10.permits[0].value]
    assert "was changed or taken out by somebody" in again.notes[0]


def test_a_list_emptied_by_an_administrator_goes_on_forbidding_everything() -> None:
    there = after(merge(kubevirt(), A10))
    there["spec"]["configuration"]["permittedHostDevices"] = {}
    assert after(merge(there, NOTHING))["spec"]["configuration"]["permittedHostDevices"] == {}


def test_lists_that_we_made_stay_while_others_use_them() -> None:
    there = after(merge(kubevirt(), A10))
    configuration = there["spec"]["configuration"]
    configuration["permittedHostDevices"]["pciHostDevices"].insert(0, pci("1:2", "a.com/x"))
    configuration["developerConfiguration"]["featureGates"].append("Snapshot")
    done = merge(there, NOTHING)
    left = after(done)["spec"]["configuration"]
    assert left == {
        "permittedHostDevices": {"pciHostDevices": [pci("1:2", "a.com/x")]},
        "developerConfiguration": {"featureGates": ["Snapshot"]},
    }
    assert ANNOTATION not in after(done)["metadata"].get("annotations", {})
    assert any("is gone again" in note for note in done.notes)


def test_an_administrators_gate_stays() -> None:
    before = kubevirt({"developerConfiguration": {"featureGates": [GATE]}})
    done = merge(before, A10)
    assert done.memory.gate is False
    assert after(merge(after(done), NOTHING)) == before


def test_a_disabled_gate_is_the_administrators_word() -> None:
    done = merge(kubevirt({"developerConfiguration": {"disabledFeatureGates": [GATE]}}), A10)
    assert "featureGates" not in done.after["spec"]["configuration"]["developerConfiguration"]
    assert [f"disables feature gate {GATE}" in text for text in done.warnings] == [True]


def test_the_first_list_restricts_and_its_end_is_told() -> None:
    first = merge(kubevirt(), A10)
    assert first.restricts
    assert not merge(kubevirt({"permittedHostDevices": {}}), A10).restricts
    assert any("every resource passes" in note for note in merge(after(first), NOTHING).notes)


def test_a_resource_without_any_known_id_is_warned_about_where_lists_decide() -> None:
    text = f"{GPU} is not permitted in KubeVirt"
    assert text in merge(kubevirt({"permittedHostDevices": {}}), want(by_nodes=GPU)).warnings[0]
    assert merge(kubevirt(), want(by_nodes=GPU)).warnings == ()
    assert merge(kubevirt(), want(by_nodes=GPU)).patch == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": {"pciHostDevices": [1]}, "gate": false, "made": []}', '{"entries": {}}'])
def test_a_foreign_annotation_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="remove the annotation"):
        merge(kubevirt(annotations={ANNOTATION: text}), A10)


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {"app.kubernetes.io/managed-by": "hco-operator"}}, {"ownerReferences": [{"kind": "HyperConverged"}]}],
)
def test_an_object_of_the_hyperconverged_operator_is_refused_when_something_lacks(metadata: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=rf"HyperConverged.*10de:2236 \({GPU}\)"):
        merge(kubevirt({}, **metadata), A10)
    there = {"permittedHostDevices": {"pciHostDevices": [A10.permits[0].value]}, "developerConfiguration": {"featureGates": [GATE]}}
    assert merge(kubevirt(there, **metadata), A10).patch == {}
    # what we once wrote may go
    taken = after(merge(kubevirt({}), A10))
    taken["metadata"].update(metadata)
    assert after(merge(taken, NOTHING))["spec"] == {"configuration": {}}


def test_the_excerpt_shows_what_may_change() -> None:
    done = merge(kubevirt({"network": {}}), A10)
    assert excerpt(done.before) == {}
    shown = excerpt(done.after)
    assert json.loads(shown.pop("annotation"))["entries"] == {PCI_LIST: [A10.permits[0].value]}
    assert shown == {"permittedHostDevices": {PCI_LIST: [A10.permits[0].value]}, "featureGates": [GATE]}


def test_vms_that_ask_for_other_resources_are_named() -> None:
    def vm(name: str, *gpus: dict[str, Any], template: bool = False) -> dict[str, Any]:
        spec = {"domain": {"devices": {"gpus": list(gpus), "hostDevices": [{"name": "n", "deviceName": NIC}]}}}
        return {"metadata": {"namespace": "a", "name": name}, "spec": {"template": {"spec": spec}} if template else spec}

    claim = {"name": "g", "claimName": "c", "requestName": "r"}
    vms = [
        vm("x", {"deviceName": "b.com/y"}),
        vm("t", {"deviceName": GPU}, template=True),
        vm("dra", claim),
        {"metadata": {"name": "none"}},
    ]
    assert strangers(vms, [NIC]) == ["a/t asks for nvidia.com/A10", "a/x asks for b.com/y"]
    assert strangers(vms, [NIC, GPU, "b.com/y"]) == []


IDS = st.sampled_from(["10de:2236", "10de:2237", "8086:1572"])
NAMES = st.sampled_from([GPU, NIC])
OTHERS = st.lists(st.builds(pci, IDS, NAMES, externalResourceProvider=st.just(True)), max_size=3)
WANTED = st.lists(st.builds(ours, IDS, NAMES), max_size=4, unique_by=str).map(lambda permits: want(*permits))
CONFIGURATIONS = st.fixed_dictionaries(
    {},
    optional={
        "permittedHostDevices": st.fixed_dictionaries({}, optional={PCI_LIST: OTHERS, USB_LIST: st.just([])}),
        "developerConfiguration": st.fixed_dictionaries({}, optional={"featureGates": st.lists(st.sampled_from([GATE, "A"]), unique=True)}),
        "network": st.just({}),
    },
)


@settings(max_examples=300, deadline=None, database=None)
@given(st.none() | CONFIGURATIONS, st.lists(WANTED, max_size=4))
def test_any_way_there_leads_back(configuration: dict[str, Any] | None, wishes: list[Wanted]) -> None:
    before = kubevirt(configuration)
    cr = copy.deepcopy(before)
    for wish in wishes:
        cr = after(merge(cr, wish))
        assert merge(cr, wish).patch == {}
        there = permitted(cr)
        assert all(any(one.is_same(other) for other in there[one.listed]) for one in wish.permits)
        for listed in LISTS:
            theirs = permitted(before)[listed]
            assert there[listed][: len(theirs)] == theirs
    back = after(merge(cr, NOTHING))
    assert json.dumps(back, sort_keys=True) == json.dumps(before, sort_keys=True)

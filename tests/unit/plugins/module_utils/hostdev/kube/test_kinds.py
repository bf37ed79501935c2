"""Kinds beside each other: what one cannot tell, the others do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.facts import Where, read_facts
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.listing import read_listing
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.node import chains
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GPU = {"resource": "a.com/gpu", "select": {"id": "10de:2684"}, "functions": "all"}
DESK = {"resource": "a.com/desk", "bundle": [{"usb": {"product": "c077"}}, {"usb": {"product": "c31c"}}]}
STICK = {"resource": "a.com/stick", "select": {"usb": {"vendor": "46f4"}}}
KVM = {"resource": "a.com/kvm", "node": "/dev/kvm", "count": 3}
ALL = parse_declaration([GPU, DESK, STICK, KVM])


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", driver="vfio-pci", group="16")
    host.node("16")
    host.usb("1-1", "046d:c077")
    host.char("/dev/kvm")
    return host


def test_a_kind_that_cannot_be_looked_at_keeps_its_units_and_no_other_kinds(host: FakeHost) -> None:
    first = find(host.root, ALL)
    assert first.faults == ()
    host.write("/sys/bus/pci/devices/0000:01:00.1", "")  # no folder any more, as between two steps of a removal
    (host.base / "dev/vfio/16").unlink()  # so that the unit is read anew
    host.usb("1-2", "46f4:0001", device=3)
    later = find(host.root, ALL, first.offers)
    assert [one for one in later.offers if one.kind == "pci"] == [one for one in first.offers if one.kind == "pci"]
    assert [one.name for one in later.offers if one.kind == "usb"] == ["1-2"]
    (fault,) = later.faults
    assert "cannot read a PCI function: 0000:01:00.1" in fault
    gone = find(host.root, parse_declaration([{**GPU, "resource": "a.com/other"}]), first.offers)
    assert (gone.offers, len(gone.faults)) == ((), 1)


def test_a_kind_that_cannot_be_looked_at_is_a_reason_and_hides_no_others(host: FakeHost) -> None:
    (host.base / "sys/kernel/iommu_groups/16/devices/0000:01:00.7").symlink_to("nowhere")
    told = {one.resource: (str(one.address), one.reason) for one in find_skipped(host.root, ALL)}
    assert told == {"a.com/gpu": ("id 10de:2684", "unreadable"), "a.com/desk": ("1-1", "incomplete-bundle")}


def test_a_machine_without_pci_has_no_functions_and_all_else(host: FakeHost) -> None:
    shutil.rmtree(host.base / "sys/bus/pci")
    assert {one.kind for one in find(host.root, ALL).offers} == {"node"}
    assert [(one.resource, one.reason) for one in find_skipped(host.root, ALL)] == [("a.com/desk", "incomplete-bundle")]
    listed = {one["resource"]: one["state"] for one in read_listing(host.root, ALL, Where())["devices"]}
    expected = {"a.com/gpu": "no-such-device", "a.com/desk": "incomplete-bundle", "a.com/stick": "no-such-device", "a.com/kvm": "Healthy"}
    assert listed == expected
    assert {one.resource for one in chains(ALL, read_facts(host.root, ALL))} == set(expected)


def test_a_look_that_finds_nothing_new_gives_what_there_was(host: FakeHost) -> None:
    """So that a node that is offered a thousand times is not compared a thousand times at each look."""
    host.char("/dev/net/tun")
    nodes = parse_declaration([KVM, {"resource": "a.com/tun", "node": "/dev/net/tun", "count": 3}])
    first = find(host.root, nodes)
    assert find(host.root, nodes, first.offers).offers is first.offers
    mixed = find(host.root, ALL)
    later = find(host.root, ALL, mixed.offers)
    assert [one for one in later.offers if one.kind == "node"] != []
    assert all(one is other for one, other in zip(later.offers, mixed.offers))

"""Units over time: what vanishes stays, unhealthy and explained, while it is declared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import MDEV, NODE, USB, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Found, Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.allocation import Allocator
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import container_answer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.roster import changes, merge, same
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

RESOURCE = "example.com/gpu"
DECLARATION = parse_declaration([{"resource": RESOURCE, "select": {"id": "10de:2684"}}])


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    for bus, group in (("01", "16"), ("02", "17")):
        host.function(f"0000:{bus}:00.0", driver="vfio-pci", group=group)
        host.node(group)
    return host


def look(host: FakeHost, former: tuple[Offer, ...] = (), *, declared: bool = True) -> tuple[Offer, ...]:
    return merge(host.root, former, find(host.root, DECLARATION, former), lambda _resource, _kind: declared)


def test_what_vanishes_stays_in_the_list_unhealthy(host: FakeHost) -> None:
    first = look(host)
    host.bind(host.folder_of("0000:01:00.0"), "nvidia")
    second = look(host, first)
    assert [(one.id, one.health) for one in second] == [("16", "Unhealthy"), ("17", "Healthy")]
    assert changes(first, second) == [f"{RESOURCE} 16 (0000:01:00.0): Unhealthy: 0000:01:00.0: bound to the host's driver nvidia"]
    host.bind(host.folder_of("0000:01:00.0"), "vfio-pci")
    assert [one.health for one in look(host, second)] == ["Healthy", "Healthy"]


def test_what_is_declared_no_more_goes(host: FakeHost) -> None:
    first = look(host)
    host.bind(host.folder_of("0000:01:00.0"), "nvidia")
    assert [one.id for one in look(host, first, declared=False)] == ["17"]


def test_a_device_of_another_group_is_not_listed_twice(host: FakeHost) -> None:
    first = look(host)
    folder = host.folder_of("0000:01:00.0")
    (folder / "iommu_group").unlink()
    host._join(folder, "0000:01:00.0", "30")
    host.node("30")
    second = look(host, first)
    assert sorted((one.id, one.name) for one in second) == [("17", "0000:02:00.0"), ("30", "0000:01:00.0")]


def allocator(host: FakeHost, seen: tuple[Offer, ...]) -> Allocator[dict[str, Any]]:
    def now() -> dict[str, Offer]:
        return {one.id: one for one in look(host, seen)}

    return Allocator(
        host.root, RESOURCE, lambda: {one.id: one for one in seen}, now, lambda ids, offers: container_answer(RESOURCE, ids, offers, "/g")
    )


def test_allocate_looks_again_before_it_answers(host: FakeHost) -> None:
    ask = allocator(host, look(host))
    assert ask([["16"]])[0]["envs"] == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:01:00.0"}
    host.bind(host.folder_of("0000:01:00.0"), "nvidia")
    with pytest.raises(Refused, match="bound to the host's driver nvidia"):
        ask([["16"]])
    assert ask([["17"]])


def test_allocate_refuses_a_device_that_does_not_answer(host: FakeHost) -> None:
    """After a guest, a card may be off the bus for good, bound and with its node as before."""
    config = host.folder_of("0000:01:00.0") / "config"
    config.write_bytes(b"\xff\xff\xff\xff\x06\x04\x10\x00".ljust(256, b"\0"))  # a virtual function, whose ids read as ones
    assert allocator(host, look(host))([["16"]])
    config.write_bytes(b"\xff" * 256)
    with pytest.raises(Refused, match=r"0000:01:00\.0 does not answer"):
        allocator(host, look(host))([["16"]])
    assert allocator(host, look(host))([["17"]])


def test_allocate_takes_a_device_that_came_since_the_list(host: FakeHost) -> None:
    seen = look(host)
    host.function("0000:03:00.0", driver="vfio-pci", group="18")
    host.node("18")
    assert allocator(host, seen)([["18"]])[0]["envs"] == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:03:00.0"}
    with pytest.raises(Absent, match=r"no unit of this node has the id 99 now \(ids: 16, 17, 18\)"):
        allocator(host, seen)([["99"]])


def kvm(count: int) -> tuple[Offer, ...]:
    return tuple(Offer(NODE, "devices.kubevirt.io/kvm", f"kvm{number}", "/dev/kvm") for number in range(count))


def test_all_units_of_a_node_are_one_line() -> None:
    assert changes((), kvm(1000)) == ["devices.kubevirt.io/kvm all units (/dev/kvm): Healthy"]
    assert changes(kvm(1000), ()) == ["devices.kubevirt.io/kvm all units (/dev/kvm): gone"]
    assert changes(kvm(1000), kvm(400)) == ["devices.kubevirt.io/kvm 600 units (/dev/kvm): gone"]


def test_another_device_under_the_same_id_is_told() -> None:
    one = Offer(USB, "a.com/key", "1-1", "1-1", ("1:2",))
    assert changes([one], [replace(one, values=("1:9",))]) == ["a.com/key 1-1 (1-1): now 1-1 1:9"]
    mdev = Offer(MDEV, "a.com/vgpu", "30", "uuid-a", ("uuid-a",))
    assert changes([mdev], [replace(mdev, name="uuid-b", values=("uuid-b",), trouble="no node")]) == [
        "a.com/vgpu 30 (uuid-a): now uuid-b",
        "a.com/vgpu 30 (uuid-b): Unhealthy: no node",
    ]


class Unread(Offer):
    """A unit that must not be looked into."""

    @property
    def reason(self) -> str:
        raise AssertionError("looked into")

    def __hash__(self) -> int:
        raise AssertionError("looked into")


def test_units_that_are_the_very_same_are_not_compared(host: FakeHost) -> None:
    units = tuple(Unread(NODE, "a.com/kvm", f"kvm{number}", "/dev/kvm") for number in range(3))
    merged = merge(host.root, units, Found(units), lambda *_all: True)
    assert same(merged, units)
    assert changes(units, merged) == []

"""USB units while devices are plugged in and out: who keeps a device, and what cannot come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import offer_usb
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.roster import merge
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

MOUSE, KEYS = "046d:c077", "046d:c31c"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def declared(*entries: dict[str, Any]) -> Declaration:
    return parse_declaration([{"resource": f"a.com/r{number}", **entry} for number, entry in enumerate(entries)])


def stick(**usb: str) -> dict[str, Any]:
    return {"select": {"usb": usb or {"vendor": "46f4"}}}


DESK = {"bundle": [{"usb": {"vendor": "046d", "product": "c077"}}, {"usb": {"vendor": "046d", "product": "c31c"}}]}


def look(host: FakeHost, declaration: Declaration, former: tuple[Offer, ...] = ()) -> tuple[Offer, ...]:
    return merge(host.root, former, find(host.root, declaration, former), lambda _resource, _kind: True)


def told(offers: tuple[Offer, ...]) -> list[tuple[str, str, str]]:
    return [(one.resource, one.name, one.health) for one in offers]


def test_another_stick_in_the_same_port_is_served(host: FakeHost) -> None:
    host.usb("1-1", serial="A")
    first = look(host, declared(stick()))
    host.unplug("1-1")
    lost = look(host, declared(stick()), first)
    assert told(lost) == [("a.com/r0", "1-1", "Unhealthy")]
    host.usb("1-1", device=3, serial="B")
    later = look(host, declared(stick()), lost)
    assert [(one.id, one.health) for one in later] == [("1-1:B", "Healthy")]


def test_a_device_of_another_kind_in_a_port_serves_who_means_it(host: FakeHost) -> None:
    host.usb("1-1")
    declaration = declared(stick(), stick(vendor="046d"))
    first = look(host, declaration)
    host.unplug("1-1")
    host.usb("1-1", MOUSE, device=3)
    assert told(look(host, declaration, first)) == [("a.com/r1", "1-1", "Healthy")]


def test_a_part_that_turns_up_at_another_port_makes_the_bundle_whole(host: FakeHost) -> None:
    host.usb("1-1", MOUSE, device=2)
    host.usb("1-2", KEYS, device=3)
    first = look(host, declared(DESK))
    host.unplug("1-2")
    lost = look(host, declared(DESK), first)
    assert told(lost) == [("a.com/r0", "1-1+1-2", "Unhealthy")]
    host.usb("1-3", KEYS, device=4)
    whole = look(host, declared(DESK), lost)
    assert told(whole) == [("a.com/r0", "1-1+1-3", "Healthy")]
    assert look(host, declared(DESK), whole) == whole


def test_what_is_left_of_a_bundle_is_given_to_no_other(host: FakeHost) -> None:
    """A pod may hold it, and the missing part may return."""
    host.usb("1-1", MOUSE, device=2)
    host.usb("1-2", KEYS, device=3)
    declaration = declared(DESK, stick(port="1-1"))
    first = look(host, declaration)
    host.unplug("1-2")
    found = offer_usb.find(host.root, declaration, first)
    assert found.offers == ()
    text = "its device serves a.com/r0 (hostdev_devices[0])"
    assert [(one.resource, one.address, one.detail) for one in found.skipped] == [("a.com/r1", "1-1", text)]
    host.usb("1-2", KEYS, device=9)
    assert told(look(host, declaration, look(host, declaration, first))) == [("a.com/r0", "1-1+1-2", "Healthy")]


def test_a_dongle_that_moves_is_counted_once(host: FakeHost) -> None:
    host.usb("1-1", serial="S")
    first = look(host, declared(stick()))
    host.unplug("1-1")
    lost = look(host, declared(stick()), first)
    host.usb("1-2", device=3, serial="S")
    moved = look(host, declared(stick()), lost)
    assert told(moved) == [("a.com/r0", "1-2", "Healthy")]


def test_of_two_sticks_with_one_serial_the_one_that_is_pulled_stays_in_the_list(host: FakeHost) -> None:
    host.usb("1-1", serial="S")
    host.usb("1-2", device=3, serial="S")
    first = look(host, declared(stick()))
    host.unplug("1-1")
    assert told(look(host, declared(stick()), first)) == [("a.com/r0", "1-1", "Unhealthy"), ("a.com/r0", "1-2", "Healthy")]


def test_selectors_that_overlap_keep_a_unit_once(host: FakeHost) -> None:
    host.usb("1-1")
    declaration = declared({"select": [{"usb": {"vendor": "46f4"}}, {"usb": {"port": "1-1"}}]})
    first = offer_usb.find(host.root, declaration).offers
    assert [one.name for one in first] == ["1-1"]
    assert offer_usb.find(host.root, declaration, first).offers == first


def test_a_device_that_an_earlier_entry_has_is_told_where_it_is_missed(host: FakeHost) -> None:
    host.usb("1-1")
    found = offer_usb.find(host.root, declared(stick(), stick(port="1-1")))
    assert [(one.resource, one.address, one.reason, one.detail) for one in found.skipped] == [
        ("a.com/r1", "1-1", "shares-group", "its device serves a.com/r0 (hostdev_devices[0])")
    ]


def test_a_device_goes_to_the_entry_that_means_it_now(host: FakeHost) -> None:
    host.usb("1-1")
    host.usb("1-2", device=3)
    first = look(host, declared(stick()))
    narrowed = declared(stick(port="1-1"), stick(port="1-2"))
    assert told(look(host, narrowed, first)) == [("a.com/r0", "1-1", "Healthy"), ("a.com/r1", "1-2", "Healthy")]

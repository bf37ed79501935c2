"""Companions in groups of their own: a group that goes along with a unit is nobody else's, and its state is the unit's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import offer_pci
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.proofs import disproved
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GPU, SOUND = "0000:01:00.0", "0000:01:00.1"
CARD = {"resource": "a.com/card", "select": {"id": "10de:2684"}, "functions": "all"}
ALONE = {"resource": "a.com/sound", "select": {"id": "10de:22ba"}}
BOTH, SOUND_FIRST = parse_declaration([CARD, ALONE]), parse_declaration([ALONE, CARD])


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.function(GPU, driver="vfio-pci", group="16")
    host.function(SOUND, "10de:22ba", "040300", driver="vfio-pci", group="17")
    for group in ("16", "17"):
        host.node(group)
    return host


def units(offers: tuple[Offer, ...]) -> list[tuple[str, str]]:
    return [(one.resource, one.id) for one in offers]


def reasons(host: FakeHost, declaration: Any, former: tuple[Offer, ...] = ()) -> list[tuple[str, str, str, str]]:
    return [(one.resource, str(one.address), one.reason, one.detail) for one in offer_pci.skipped(host.root, declaration, former)]


def test_a_companions_group_is_not_handed_out_a_second_time(host: FakeHost) -> None:
    (offer,) = offer_pci.find(host.root, BOTH).offers
    assert (offer.resource, offer.required, offer.companions) == ("a.com/card", ("/dev/vfio/16", "/dev/vfio/17"), (SOUND,))
    text = "its IOMMU group 17 already serves a.com/card (hostdev_devices[0])"
    assert reasons(host, BOTH) == [("a.com/sound", SOUND, "shares-group", text)]


def test_a_group_that_is_given_already_does_not_go_along_with_another_unit(host: FakeHost) -> None:
    assert units(offer_pci.find(host.root, SOUND_FIRST).offers) == [("a.com/sound", "17")]
    text = "its companion's IOMMU group 17 already serves a.com/sound (hostdev_devices[0])"
    assert reasons(host, SOUND_FIRST) == [("a.com/card", GPU, "shares-group", text)]


def test_a_unit_that_is_kept_keeps_all_its_groups(host: FakeHost) -> None:
    """A later look decides only about what is not kept."""
    host.function("0000:02:00.0", "8086:1533", "020000", driver="vfio-pci", group="17")
    declaration = parse_declaration([CARD, {"resource": "a.com/net", "select": {"id": "8086:1533"}}])
    first = offer_pci.find(host.root, declaration).offers
    assert units(first) == [("a.com/card", "16")]
    later = offer_pci.find(host.root, declaration, first).offers
    assert (later[0], units(later)) == (first[0], [("a.com/card", "16")])


def test_a_unit_that_is_kept_yields_nothing_to_a_companion_that_comes_later(host: FakeHost) -> None:
    host.bind(host.folder_of(GPU), "nvidia")
    first = offer_pci.find(host.root, BOTH).offers
    assert units(first) == [("a.com/sound", "17")]
    host.bind(host.folder_of(GPU), "vfio-pci")
    assert offer_pci.find(host.root, BOTH, first).offers == first
    assert reasons(host, BOTH, first) == [("a.com/card", GPU, "shares-group", "its companion's IOMMU group 17 already serves a.com/sound")]


def test_a_companion_that_its_own_resource_selects_too_is_no_second_unit(host: FakeHost) -> None:
    declaration = parse_declaration([{**CARD, "select": [{"id": "10de:2684"}, {"id": "10de:22ba"}]}])
    assert units(offer_pci.find(host.root, declaration).offers) == [("a.com/card", "16")]
    assert reasons(host, declaration) == []


def bound_elsewhere(host: FakeHost) -> None:
    host.bind(host.folder_of(SOUND), "snd_hda_intel")


def unbound(host: FakeHost) -> None:
    host.bind(host.folder_of(SOUND), "")


def groupless(host: FakeHost) -> None:
    (host.folder_of(SOUND) / "iommu_group").unlink()
    (host.base / f"sys/kernel/iommu_groups/17/devices/{SOUND}").unlink()


def joined(host: FakeHost) -> None:
    host.function("0000:02:00.0", "8086:1533", "020000", driver="e1000e", group="17")


CHANGES = [
    (bound_elsewhere, "companion-not-bound", f"companion {SOUND} is on snd_hda_intel"),
    (unbound, "companion-not-bound", f"companion {SOUND} is not bound to a driver"),
    (groupless, "companion-not-bound", f"companion {SOUND} has no IOMMU group"),
    (
        joined,
        "group-not-viable",
        f"companion {SOUND} is in IOMMU group 17, which is not viable: held by drivers of the host: 0000:02:00.0 e1000e",
    ),
]


@pytest.mark.parametrize(("change", "code", "text"), CHANGES)
def test_a_companion_that_no_guest_can_have_is_the_units_trouble(host: FakeHost, change: Any, code: str, text: str) -> None:
    declaration = parse_declaration([CARD])
    first = offer_pci.find(host.root, declaration).offers
    change(host)
    assert disproved(host.root, first[0]) != ""
    (offer,) = offer_pci.find(host.root, declaration, first).offers
    assert (offer.health, offer.code, offer.reason) == ("Unhealthy", code, text)
    assert reasons(host, declaration) == [("a.com/card", GPU, code, text)]


def test_a_companion_in_the_units_own_group_has_to_be_bound_too(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.function(GPU, driver="vfio-pci", group="16")
    host.function(SOUND, "10de:22ba", "040300", group="16")
    host.node("16")
    (offer,) = offer_pci.find(host.root, parse_declaration([CARD])).offers
    assert (offer.code, offer.reason) == ("companion-not-bound", f"companion {SOUND} is not bound to a driver")
    # where it stays on the host, an unbound member hinders nobody (drivers/vfio/group.c)
    assert offer_pci.find(host.root, parse_declaration([{**CARD, "functions": "primary"}])).offers[0].health == "Healthy"

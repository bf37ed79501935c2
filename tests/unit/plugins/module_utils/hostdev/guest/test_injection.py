"""Whatever a manifest, a variable or an annotation says, it is one value in the domain, never an element."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sriov import NetworkAddresses
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.fakes.manifests import manifest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree

A, U = "0000:01:00.0", "53764d0e-85a0-42b4-af5c-2046b460b1dc"
TRICKS = (
    "'/><b/>",
    "</serial><b/>",
    "<!--",
    "]]>",
    "&amp;",
    "$(reboot)",
    "../../etc/passwd",
    "a\nb",
    "\u202e",
    "é",
    "<?x?>",
    "\ud83d\ude00",
)
TEXT = st.one_of(st.sampled_from(TRICKS), st.text(st.characters(codec="utf-8"), max_size=20))
# what is free to choose -> where it stands in the domain
PLACES = {
    "serial": "sysinfo/system/entry[@name='serial']",
    "kernel arguments": "os/cmdline",
    "disk serial": "devices/disk/serial",
}


def _document(place: str, text: str) -> dict[str, Any]:
    kernel = {"container": {"image": "i", "kernelPath": "k"}, "kernelArgs": text if place == "kernel arguments" else "x"}
    disk = {"name": "d", "serial": text if place == "disk serial" else "x"}
    document = manifest(
        firmware={"serial": text if place == "serial" else "x", "kernelBoot": kernel},
        devices={"disks": [disk], "gpus": [{"name": "g", "deviceName": "x.io/p"}], "hostDevices": [{"name": "m", "deviceName": "x.io/m"}]},
    )
    document["spec"]["volumes"] = [{"name": "d", "emptyDisk": {"capacity": "1Mi"}}]
    document["spec"]["networks"] = [{"name": "n", "multus": {"networkName": "n"}}]
    document["spec"]["domain"]["devices"]["interfaces"] = [{"name": "n", "sriov": {}}]
    return document


def _rendered(place: str = "", text: str = "x", pci: str = A, mdev: str = U, function: str = "0000:02:00.0") -> Optional[Any]:
    environment = {"PCI_RESOURCE_X_IO_P": pci, "MDEV_PCI_RESOURCE_X_IO_M": mdev}
    try:
        vmi = parse_manifest(_document(place, text)).instance()
        return etree.fromstring(render(vmi, environment, DomainSettings(networks=NetworkAddresses("f", {"n": function}))))
    except Fault:
        return None


def _tags(root: Any) -> list[Any]:
    return [one.tag for one in root.iter()]


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=150, deadline=None, database=None)
@given(text=TEXT)
@example(text="\x00")
def test_a_text_of_the_manifest_is_one_text(place: str, text: str) -> None:
    found = _rendered(place, text)
    if found is None or not text:
        return
    assert _tags(found) == _tags(_rendered())
    assert found.findtext(PLACES[place]) == text


@settings(max_examples=150, deadline=None, database=None)
@given(text=TEXT)
def test_an_address_is_an_address_or_refused(text: str) -> None:
    assert _rendered(pci=text) is None
    assert _rendered(mdev=text) is None
    assert _rendered(function=text) is None


def test_what_no_xml_can_hold_is_refused_where_it_stands() -> None:
    vmi = parse_manifest(_document("kernel arguments", "a\x00b")).instance()
    networks = NetworkAddresses("f", {"n": "0000:02:00.0"})
    with pytest.raises(Refused, match="text of <cmdline>, 'a.x00b'"):
        render(vmi, {"PCI_RESOURCE_X_IO_P": A, "MDEV_PCI_RESOURCE_X_IO_M": U}, DomainSettings(networks=networks))

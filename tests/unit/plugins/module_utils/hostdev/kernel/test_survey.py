"""The view of a machine that reports are made of."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.survey import survey, usb_bundles
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost


def test_plugged_usb_devices_are_told_bundle_by_bundle(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.usb("1-1", "046d:c077")
    host.usb("1-2", "046d:c31c", device=3)
    host.usb("1-4", "1050:0407", device=4)
    mouse, keyboard = ({"usb": {"vendor": "046d", "product": product}} for product in ("c077", "c31c"))
    declaration = parse_declaration(
        [
            {"resource": "a.com/key", "select": {"usb": {"port": "1-4"}}},
            {"resource": "a.com/desk", "bundle": [keyboard, mouse]},
            {"resource": "a.com/none", "select": {"usb": {"port": "1-9"}}},
        ]
    )
    told = usb_bundles(host.root, declaration)
    assert told == [
        {"resource": "a.com/key", "devices": [{"port": "1-4", "vendor": "1050", "product": "0407"}]},
        {
            "resource": "a.com/desk",
            "devices": [{"port": "1-2", "vendor": "046d", "product": "c31c"}, {"port": "1-1", "vendor": "046d", "product": "c077"}],
        },
    ]
    assert survey(host.root, declaration)["usb"] == told

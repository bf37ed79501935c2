"""UUIDs and USB addresses: what is read, what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.addresses import MdevAddress, UsbAddress

UUID = "53764d0e-85a0-42b4-af5c-2046b460b1dc"


def test_equal_uuids_are_equal() -> None:
    assert MdevAddress.parse(UUID.upper()) == MdevAddress.parse(UUID) == MdevAddress(UUID)
    assert str(MdevAddress.parse(UUID)) == UUID


@pytest.mark.parametrize("text", ["", "u-1", UUID[:-1], f"{UUID}0", UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", f" {UUID}"])
def test_no_uuid(text: str) -> None:
    with pytest.raises(Refused) as caught:
        MdevAddress.parse(text)
    assert caught.value.subject == repr(text)


def test_usb_numbers_are_decimal() -> None:
    assert UsbAddress.parse("3:117") == UsbAddress(3, 117)
    assert str(UsbAddress.parse("003:004")) == "3:4"


@pytest.mark.parametrize(
    "text", ["", "1", "1-2", "1:2:3", "a:2", "1:", ":2", "0x1:2", "1: 2", "0:1", "65:1", "1:0", "1:128", "-1:2", "١:2"]
)
def test_no_usb_address(text: str) -> None:
    with pytest.raises(Refused) as caught:
        UsbAddress.parse(text)
    assert caught.value.subject == repr(text)

"""PCI addresses."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused


def test_numbers_and_spelling() -> None:
    address = Address.parse("05EA:Fc:1d.6")
    assert (address.domain, address.bus, address.slot, address.function) == (0x5EA, 0xFC, 0x1D, 6)
    assert str(address) == "05ea:fc:1d.6"
    assert address.slot_text == "05ea:fc:1d"


def test_vmd_domains_sort_behind_ordinary_ones() -> None:
    texts = ["10000:00:02.0", "0000:81:00.0", "0000:0a:00.0"]
    assert [str(address) for address in sorted(map(Address.parse, texts))] == ["0000:0a:00.0", "0000:81:00.0", "10000:00:02.0"]


@pytest.mark.parametrize("text", ["", "65:00.0", "0000:65:00.8", "0000:65:20.0", "0000:65:00.0 ", "0000:65:00.0\n", "000g:65:00.0"])
def test_refused_with_the_text_and_an_example(text: str) -> None:
    with pytest.raises(Refused) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)
    assert "lspci -D" in caught.value.hint

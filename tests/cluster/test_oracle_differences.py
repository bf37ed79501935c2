"""What KubeVirt's launcher makes of guests and what ours makes: equal, or different as docs/kubevirt-differences.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from ansible_collections.vfio.passthrough.tests.fakes.oracle import Oracle
from ansible_collections.vfio.passthrough.tests.fuzz.guests import DIFFERENCES, Guest, compare, kubevirts, ours, reasons, refusal

PAGE = Path(__file__).parents[2] / "docs/kubevirt-differences.md"
PCI, MDEV, USB = "PCI_RESOURCE_X_IO_A", "MDEV_PCI_RESOURCE_X_IO_A", "USB_RESOURCE_X_IO_A"
A, B = "0000:01:00.0", "0000:02:00.0"
U = "53764d0e-85a0-42b4-af5c-2046b460b1dc"


@pytest.fixture(name="oracle", scope="module")
def _oracle() -> Iterator[Oracle]:
    with Oracle() as oracle:
        yield oracle


def guest(env: dict[str, str], host_devices: int = 0, gpus: int = 0, **display: Any) -> Guest:
    """Return a guest whose entries all ask for x.io/a."""
    options = {"virtualGPUOptions": {"display": display}} if display else {}
    plain = [{"name": f"h{number}", "deviceName": "x.io/a"} for number in range(host_devices)]
    return Guest({"hostDevices": plain, "gpus": [{"name": f"g{number}", "deviceName": "x.io/a", **options} for number in range(gpus)]}, env)


def sources(made: Any) -> list[tuple[str, str]]:
    """Return alias and source of each hostdev."""
    found: list[tuple[str, str]] = []
    for dummy, attributes, children in made:
        parts = {tag: (own, below) for tag, own, below in children}
        values = dict(parts["source"][1][0][1])
        form = {"pci": "{domain}:{bus}:{slot}.{function}", "mdev": "{uuid}", "usb": "{bus}:{device}"}[dict(attributes)["type"]]
        found.append((dict(parts["alias"][0])["name"].removeprefix("ua-"), form.format(**values).replace("0x", "")))
    return found


def test_five_hundred_guests_are_equal_or_differ_as_listed(oracle: Oracle) -> None:
    stood, shown = compare(oracle, 500, repeatable=True)
    assert stood["equal"] > 100
    assert len(shown) > len(DIFFERENCES) / 2


def test_what_may_differ_is_on_the_page() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|.*`(test_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(DIFFERENCES) <= {name for name, dummy in rows}
    assert len(rows) == len(re.findall(r"^\| (?!difference|---)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_a_pci_device_has_another_form(oracle: Oracle) -> None:
    (text,) = oracle.ask({PCI: A}, ["x.io/a"])["devices"]
    theirs = ET.fromstring(text)
    assert (theirs.get("mode"), theirs.find("source/address").get("type")) == (None, "pci")  # type: ignore[union-attr]
    ((dummy, attributes, children),) = ours(guest({PCI: A}, 1))
    assert ("mode", "subsystem") in attributes
    assert "'type'" not in repr(children)


def test_one_pool(oracle: Oracle) -> None:
    both = guest({PCI: f"{A},{B}"}, 1, 1)
    assert sources(kubevirts(oracle, both)) == [("hostdevice-h0", A), ("gpu-g0", A)]
    assert sources(ours(both)) == [("hostdevice-h0", A), ("gpu-g0", B)]


def test_whole_bundles(oracle: Oracle) -> None:
    desk = guest({USB: "1:2,1:3"}, 1)
    assert sources(kubevirts(oracle, desk)) == [("usb-host-h0", "1:2")]
    assert sources(ours(desk)) == [("usb-host-h0", "1:2"), ("usb-host-h0-d1", "1:3")]


def test_no_address_twice(oracle: Oracle) -> None:
    twice = guest({PCI: f"{A},{A}"}, 1)
    assert sources(kubevirts(oracle, twice)) == [("hostdevice-h0", A)]
    assert f"{A}: it stands twice: {PCI}='{A},{A}'" in refusal(twice)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({MDEV: "u-1"}, f"{MDEV}: 'u-1'"),
        ({USB: "a:b"}, f"{USB}: 'a:b'"),
        ({PCI: "0000:01:20.0"}, f"{PCI}: '0000:01:20.0'"),
        ({PCI: f"{A},what nobody draws"}, f"{PCI}: 'what nobody draws'"),
        ({MDEV: "<b/>"}, f"{MDEV}: '<b/>'"),
    ],
)
def test_values_are_checked(oracle: Oracle, env: dict[str, str], said: str) -> None:
    wrong = guest(env, 1)
    assert len(kubevirts(oracle, wrong)) == 1
    assert said in refusal(wrong)


def test_wide_domains(oracle: Oracle) -> None:
    wide = guest({PCI: "10000:e1:00.0"}, 1)
    assert kubevirts(oracle, wide) == "error"
    assert sources(ours(wide)) == [("hostdevice-h0", "10000:e1:00.0")]


def test_one_spelling(oracle: Oracle) -> None:
    for env, theirs, mine in (
        ({PCI: "0000:0A:00.0"}, "0000:0A:00.0", "0000:0a:00.0"),
        ({MDEV: U.upper()}, U.upper(), U),
        ({USB: "001:002"}, "001:002", "1:2"),
    ):
        one = guest(env, 1)
        assert [source for dummy, source in sources(kubevirts(oracle, one))] == [theirs]
        assert [source for dummy, source in sources(ours(one))] == [mine]


def test_one_kind(oracle: Oracle) -> None:
    mixed = guest({PCI: A, MDEV: U}, 2)
    assert sources(kubevirts(oracle, mixed)) == [("hostdevice-h0", A), ("hostdevice-h0", U)]
    assert f"{PCI}='{A}' and {MDEV}='{U}' name devices of two kinds" in refusal(mixed)


def test_unset_ramfb(oracle: Oracle) -> None:
    unset = guest({MDEV: U}, 0, 1, ramFB={})
    assert kubevirts(oracle, unset) == "panic"
    assert ours(unset) == ours(guest({MDEV: U}, 0, 1, ramFB={"enabled": True})) == kubevirts(oracle, guest({MDEV: U}, 0, 1, enabled=True))


def test_several_functions(oracle: Oracle) -> None:
    card = guest({PCI: A, "HOSTDEV_COMPANIONS_X_IO_A": f"{A}=0000:01:00.1"}, 0, 1)
    assert sources(kubevirts(oracle, card)) == [("gpu-g0", A)]
    assert sources(ours(card)) == [("gpu-g0", A), ("gpu-g0-f1", "0000:01:00.1")]


def test_counts_are_told(oracle: Oracle) -> None:
    short = guest({PCI: A}, 2)
    assert "do not match the number of devices" in oracle.ask_of(short.devices, short.env)["error"]
    assert f"hostDevices[1]: 2 of the manifest's devices ask for x.io/a, and {PCI}='{A}' (1 addresses)" in refusal(short)


def test_equal_aliases(oracle: Oracle) -> None:
    one = guest({PCI: f"{A},{B}"}, 2)
    one.devices["hostDevices"][1]["name"] = "h0"
    assert [alias for alias, dummy in sources(kubevirts(oracle, one))] == ["hostdevice-h0", "hostdevice-h0"]
    assert "alias ua-hostdevice-h0" in refusal(one)


def test_a_guest_without_a_reason_is_equal(oracle: Oracle) -> None:
    plain = guest({MDEV: U}, 0, 1)
    plain.devices["interfaces"] = [{"name": "blue", "sriov": {}, "pciAddress": "0000:20:00.0", "bootOrder": 1}]
    info = '{"interfaces": [{"network": "blue", "deviceInfo": {"type": "pci", "pci": {"pci-address": "0000:65:0a.3"}}}]}'
    full = Guest(plain.devices, plain.env, info)
    assert reasons(full) == []
    assert kubevirts(oracle, full) == ours(full)
    assert sources(ours(full)) == [("gpu-g0", U), ("sriov-blue", "0000:65:0a.3")]

"""Guests of any kind, as KubeVirt's launcher and ours make host devices of them: equal, or different for a listed reason.

The reasons are told from the input alone, and are those of docs/kubevirt-differences.md.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import PREFIXES, variable
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.domain import render
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.environment import PARSERS
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.settings import DomainSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.sriov import read_network_addresses
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.instance import VirtualMachineInstance
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.meta import Metadata
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.mounts import NETWORK_INFO
from ansible_collections.vfio.passthrough.tests.cases.specs import spec_of
from ansible_collections.vfio.passthrough.tests.fakes.oracle import Oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RESOURCES = tuple(f"x.io/{name}" for name in ("gpu", "nic-1", "v.gpu_4Q", "stick", "both"))
LISTS = ("hostDevices", "gpus")


@dataclass(frozen=True)
class Guest:
    """spec.domain.devices, the container's variables, and KubeVirt's file network-info."""

    devices: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)
    network_info: str = ""

    def resources(self, *lists: str) -> list[str]:
        """Return the resource of each entry of these lists, in order."""
        return [entry["deviceName"] for key in lists for entry in self.devices.get(key, ())]

    def items(self, kind: str, resource: str) -> list[str]:
        """Return what stands between the commas of a variable, as KubeVirt cuts it."""
        text = self.env.get(variable(PREFIXES[kind], resource), "").removesuffix(",")
        return text.split(",") if text else []

    def functions(self) -> list[str]:
        """Return the addresses of virtual functions in network-info."""
        told = json.loads(self.network_info)["interfaces"] if self.network_info else []
        return [one["deviceInfo"]["pci"]["pci-address"] for one in told if one.get("deviceInfo")]


def kubevirts(oracle: Oracle, guest: Guest) -> Any:
    """Return KubeVirt's hostdevs in our form of a PCI device, or "error" or "panic"."""
    answer = oracle.ask_of(guest.devices, guest.env, guest.network_info)
    if "devices" not in answer and answer:
        return next(iter(answer))
    made = [ET.fromstring(text) for text in answer.get("devices", ())]
    for one in made:
        source = one.find("source/address")
        assert source is not None
        if one.get("type") == "pci":
            one.set("mode", "subsystem")
            del source.attrib["type"]
    return [_plain(one) for one in made]


def ours(guest: Guest) -> Any:
    """Return the hostdevs of our domain, or "error"; any exception but a Fault goes through."""
    try:
        return [_plain(one) for one in _domain(guest).findall("devices/hostdev")]
    except Fault:
        return "error"


def refusal(guest: Guest) -> str:
    """Return what we say of a guest that we refuse; an assertion error when we take it."""
    try:
        _domain(guest)
    except Fault as fault:
        return str(fault)
    raise AssertionError("it is not refused")


def _domain(guest: Guest) -> ET.Element:
    spec = spec_of({"domain": {"memory": {"guest": "1Gi"}, "devices": guest.devices}})
    vmi = VirtualMachineInstance(Metadata(name="guest"), spec)
    with tempfile.TemporaryDirectory() as base:
        (Path(base) / NETWORK_INFO).write_text(guest.network_info, encoding="utf-8")
        names = [interface.name for dummy, interface in spec.sriov]
        networks = read_network_addresses(Root(base=Path(base)), "/", names, 0.0) if names else None
    return ET.fromstring(render(vmi, guest.env, DomainSettings(networks=networks, screen=True)))


def _plain(element: ET.Element) -> Any:
    return [element.tag, sorted(element.attrib.items()), sorted((_plain(child) for child in element), key=repr)]


def _used(guest: Guest) -> Iterator[tuple[str, str, list[str]]]:
    for resource in dict.fromkeys(guest.resources(*LISTS)):
        for kind in PREFIXES:
            yield kind, resource, guest.items(kind, resource)
    yield "pci", "", guest.functions()


def _spelling(guest: Guest) -> bool:
    def other(kind: str, item: str) -> bool:
        value = _parsed(kind, item)
        return value is not None and str(value) != item

    return any(other(kind, item) for kind, dummy, items in _used(guest) for item in items)


def _parsed(kind: str, item: str) -> Any:
    try:
        return PARSERS[kind](item.strip())
    except Fault:
        return None


def _repeated(guest: Guest) -> bool:
    found = Counter(_parsed(kind, item) or item for kind, dummy, items in _used(guest) for item in items)
    return any(count > 1 for count in found.values())


def _two_kinds(guest: Guest) -> bool:
    return any(sum(bool(guest.items(kind, resource)) for kind in PREFIXES) > 1 for resource in guest.resources(*LISTS))


def _bundle(guest: Guest) -> bool:
    wanted = Counter(guest.resources("hostDevices"))
    return any(len(guest.items("usb", resource)) > count for resource, count in wanted.items())


def _unset_ramfb(guest: Guest) -> bool:
    displays = [(entry, entry.get("virtualGPUOptions", {}).get("display", {})) for entry in guest.devices.get("gpus", ())]
    return any(guest.items("mdev", entry["deviceName"]) and display.get("ramFB") == {} for entry, display in displays)


def _wide(guest: Guest) -> bool:
    pci = [item for kind, dummy, items in _used(guest) if kind == "pci" for item in items]
    return any(len(item.partition(":")[0]) > 4 and _parsed("pci", item) for item in pci)


# a heading of docs/kubevirt-differences.md -> whether it may show in what a guest is given
DIFFERENCES: Mapping[str, Callable[[Guest], bool]] = {
    "one pool": lambda guest: bool(set(guest.resources("gpus")) & set(guest.resources("hostDevices"))),
    "whole bundles": _bundle,
    "values are checked": lambda guest: any(_parsed(kind, item) is None for kind, dummy, items in _used(guest) for item in items),
    "one spelling": _spelling,
    "no address twice": _repeated,
    "one kind": _two_kinds,
    "unset ramFB": _unset_ramfb,
    "wide domains": _wide,
}


def reasons(guest: Guest) -> list[str]:
    """Return the listed differences that may show."""
    return [name for name, applies in DIFFERENCES.items() if applies(guest)]


def check(oracle: Oracle, guest: Guest) -> str:
    """Compare both; return how they stood: "equal", "both refuse", or "different" for a listed reason."""
    theirs, mine = kubevirts(oracle, guest), ours(guest)
    if theirs == mine:
        return "both refuse" if mine == "error" else "equal"
    assert reasons(guest), f"an unlisted difference\nKubeVirt {theirs}\nours     {mine}"
    if mine != "error":
        _sound(guest, mine)
    return "different"


def _sound(guest: Guest, made: Any) -> None:
    """Wherever we differ, no device is given twice, no alias is, and every entry has its own."""
    sources = [repr(source) for one in made for source in one[2] if source[0] == "source"]
    aliases = [dict(alias[1])["name"] for one in made for alias in one[2] if alias[0] == "alias"]
    names = [entry["name"] for key in (*LISTS, "interfaces") for entry in guest.devices.get(key, ())]
    assert len(set(sources)) == len(sources)
    assert len(set(aliases)) == len(aliases)
    assert all(any(alias.endswith(f"-{name}") for alias in aliases) for name in names)


def _address(domains: tuple[str, ...] = ("0000",)) -> st.SearchStrategy[str]:
    return st.builds("{}:{:02x}:{:02x}.{}".format, st.sampled_from(domains), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


_GOOD: Mapping[str, st.SearchStrategy[str]] = {
    "pci": _address(),
    "mdev": st.uuids().map(str),
    "usb": st.builds("{}:{}".format, st.integers(1, 64), st.integers(1, 127)),
}
_ODD = st.one_of(
    st.sampled_from(
        ["", " ", "0000:01:20.0", "0000:1:00.0", "u-1", "1-2", "1:2:3", "01:002", "999:1", "0000:AB:00.0", "<a/>", "../..", "é"]
    ),
    _address(("10000", "ABCD")),
    st.uuids().map(lambda one: str(one).upper()),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)
_FEATURE = st.sampled_from([{}, {"enabled": True}, {"enabled": False}])
_DISPLAY = st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "ramFB": _FEATURE})


def _seldom(of: int) -> st.SearchStrategy[bool]:
    # hypothesis likes the ends best
    return st.integers(1, of).map(lambda number: number == of // 2 + 1)


@st.composite
def _values(draw: st.DrawFn, kind: str, wanted: int) -> str:
    """Return a variable's value: mostly as many addresses as are wanted, now and then others, or odd ones."""
    count = draw(st.sampled_from([*[wanted] * 9, wanted + 1, max(0, wanted - 1), 2 * wanted]))
    odd, repeated = draw(_seldom(10)), draw(_seldom(20))
    items = draw(st.lists(_GOOD[kind], min_size=count, max_size=count, unique=True))
    if items and odd:
        items[draw(st.integers(0, len(items) - 1))] = draw(_ODD)
    if items and repeated:
        items.append(draw(st.sampled_from(items)))
    return ",".join(items) + draw(st.sampled_from(["", "", "", ","]))


@st.composite
def guests(draw: st.DrawFn) -> Guest:
    """Return a guest with up to four entries in each list and two networks."""
    apart = not draw(_seldom(3))
    pool = tuple(draw(st.permutations(RESOURCES)))
    lists = {"hostDevices": pool[:3] if apart else pool, "gpus": pool[3:] if apart else pool}
    devices: dict[str, Any] = {key: draw(_entries(key[0], resources)) for key, resources in lists.items()}
    wanted = Counter(entry["deviceName"] for key in LISTS for entry in devices[key])
    env: dict[str, str] = {}
    for resource, count in wanted.items():
        usual = st.sampled_from(("pci", "pci", "mdev", "usb") if resource in lists["hostDevices"] else ("pci", "mdev"))
        for kind in {draw(usual), *([draw(usual)] if draw(_seldom(15)) else [])}:
            if not draw(_seldom(20)):
                env[variable(PREFIXES[kind], resource)] = draw(_values(kind, count)).replace("\0", "")
    networks = draw(st.lists(st.sampled_from(["blue", "red"]), max_size=2, unique=True)) if draw(_seldom(3)) else []
    devices["interfaces"] = [{"name": name, "sriov": {}, **draw(_interface)} for name in networks]
    return Guest(devices, env, draw(_network_info(networks)) if networks else "")


@st.composite
def _entries(draw: st.DrawFn, letter: str, resources: tuple[str, ...]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 4)) if resources else 0):
        entry: dict[str, Any] = {"name": f"{letter}{number}", "deviceName": draw(st.sampled_from(resources))}
        if letter == "g" and draw(st.booleans()):
            entry["virtualGPUOptions"] = {"display": draw(_DISPLAY)} if not draw(_seldom(5)) else {}
        made.append(entry)
    return made


_interface = st.fixed_dictionaries({}, optional={"pciAddress": _address(), "bootOrder": st.integers(1, 9)})


@st.composite
def _network_info(draw: st.DrawFn, networks: list[str]) -> str:
    told = [name for name in [*networks, "other"] if not draw(_seldom(10))]
    infos = [{"type": "pci", "version": "1.0.0", "pci": {"pci-address": draw(st.one_of(*[_GOOD["pci"]] * 9, _ODD))}} for _name in told]
    shown = [{"network": name, **({"deviceInfo": info} if not draw(_seldom(20)) else {})} for name, info in zip(told, infos)]
    return json.dumps({"interfaces": shown})


def compare(oracle: Oracle, examples: int, *, repeatable: bool) -> tuple[Counter[str], Counter[str]]:
    """Compare that many guests; return how they stood, and how often each listed difference showed."""
    stood: Counter[str] = Counter()
    shown: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, derandomize=repeatable, suppress_health_check=list(HealthCheck))
    @given(guests())
    def one(guest: Guest) -> None:
        how = check(oracle, guest)
        stood[how] += 1
        shown.update(reasons(guest) if how == "different" else [])

    one()
    return stood, shown

"""Adapter of permitted-validation.json: the devices of a guest against the permitted names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.permitted import GPUS, HOST_DEVICES, refuse_unpermitted
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.schema import Reading, read_object
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.spec import Spec
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS = ("cases",)
_LISTS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "permitted": ("pciHostDevices", lambda number: {"pciVendorSelector": f"10de:{number:04x}"}),
    "permitted_pci": ("pciHostDevices", lambda number: {"pciVendorSelector": f"8086:{number:04x}"}),
    "permitted_mdev": ("mediatedDevices", lambda number: {"mdevNameSelector": f"type {number}"}),
    "permitted_usb": ("usb", lambda number: {"selectors": [{"vendor": "46f4", "product": f"{number:04x}"}]}),
}
_GATES = {"GPUsWithDRA": GPUS, "HostDevicesWithDRA": HOST_DEVICES}
_ASIDE = {"name", "how", "note", "expected", "want", "recommended"}


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per guest; the gates of DRA that a case does not name are on."""
    for case in document.get("cases", ()):
        want = case.get("want", case.get("expected"))
        known = set(case) <= {*_ASIDE, *_LISTS, "gates_off", GPUS, HOST_DEVICES} and set(case.get("gates_off", ())) <= set(_GATES)
        yield Case(case["name"], partial(_check, case, want) if known and isinstance(want, str) else None)


def _check(case: Mapping[str, Any], want: str) -> None:
    try:
        refuse_unpermitted(_spec(case), _permitted(case), [_GATES[gate] for gate in case.get("gates_off", ())])
        got = "ok"
    except Refused as fault:
        got = want if want in str(fault) else str(fault)
    same(got, want)


def _permitted(case: Mapping[str, Any]) -> Any:
    """Return the names that a configuration with the case's lists permits; None without a configuration."""
    block: dict[str, list[Any]] = {}
    for name, (listed, select) in _LISTS.items():
        if case.get(name) is not None:
            block.setdefault(listed, []).extend({"resourceName": one, **select(number)} for number, one in enumerate(case[name]))
    return parse_declaration(permitted=block).resources if block else None


def _spec(case: Mapping[str, Any]) -> Spec:
    devices = {listed: [_device(f"{listed}{i}", one) for i, one in enumerate(case.get(listed, ()))] for listed in (GPUS, HOST_DEVICES)}
    reading = Reading()
    spec: Spec = read_object(Spec, {"domain": {"devices": devices}}, "spec", reading)
    reading.finish("read a case", "")
    return spec


def _device(name: str, one: Any) -> dict[str, str]:
    if isinstance(one, str):
        return {"name": name, "deviceName": one}
    claim, _slash, request = one["claim"].partition("/")
    return {"name": name, "claimName": claim, "requestName": request}

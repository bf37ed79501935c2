"""Adapter of machines/: public machines as made trees; what we would bind, refuse and leave, and how many units there are.

The device meant is `target` where the file names one, else every display device that is not the boot display, by its ids.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Callable

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel import bound
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.arguments import needed
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.cmdline import parse
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.inventory import find, read_inventory
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import read_state
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.pci import read_function, read_group
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.kernel import FakeKernel, intel

Document = dict[str, Any]
SECTIONS = ("context", "expect", "want", "devices")
RESOURCE = "example.com/meant"


def cases(document: Document) -> Iterator[Case]:
    """Yield one case per expectation of the file; `want` as a whole replaces `expect`."""
    for key, want in expected(document).items():
        look = LOOKS.get(key)
        yield Case(key, partial(_check, document, look, want) if look else None)


def expected(document: Document) -> dict[str, Any]:
    """Return what is to be compared."""
    found: dict[str, Any] = document["want"] if "want" in document else document.get("expect", {})
    return found


def _check(document: Document, look: Callable[[Document, FakeKernel, Any], Any], want: Any) -> None:
    with machine(document) as kernel:
        same(look(document, kernel, want), want)


@contextmanager
def machine(document: Document) -> Iterator[FakeKernel]:
    """Make the machine of a file: an Intel or AMD host with its IOMMU active."""
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(Path(folder))
        arguments = " ".join(document.get("context", {}).get("kernel_cmdline_has", []))
        intel(host, active=document.get("context", {}).get("iommu_active", True), arguments=arguments or "quiet")
        kernel = FakeKernel(host, answers={"ip": "[]", "dmesg": ""})
        alone: dict[str, str] = {}
        for number, device in enumerate(document["devices"]):
            slot = device["address"].rpartition(".")[0]
            group = alone.setdefault(slot, str(1000 + len(alone))) if device["iommu_group"] is None else str(device["iommu_group"])
            _add(document, kernel, device, group, number)
        yield kernel


def _add(document: Document, kernel: FakeKernel, device: dict[str, Any], group: str, number: int) -> None:
    address, driver = device["address"], device["driver"] or ""
    assumed = address in re.findall(r"boot_vga of ([0-9a-f:.]+) is taken as 1", document.get("reading", ""))
    files = {"boot_vga": "1\n"} if device["boot_vga"] or assumed else {}
    if device["numa_node"] is not None:
        files["numa_node"] = f"{device['numa_node']}\n"
    if device["subsystem"]:
        files["subsystem_vendor"], files["subsystem_device"] = (f"0x{part}\n" for part in device["subsystem"].split(":"))
    # ids that a report cut off are ids that no other device has
    ids = f"{device['vendor'] or 'fffe'}:{device['device'] or f'{number:04x}'}"
    kernel.host.function(address, ids, device["class"] + "00", driver=driver, group=group, files=files)
    kernel.natives[address] = "" if driver == "vfio-pci" else driver


def declared(document: Document) -> Declaration:
    """Return the declaration of what is meant."""
    target = expected(document).get("target")
    if target:
        selectors: list[dict[str, str]] = [{"address": address} for address in target]
    else:
        displays = [one for one in document["devices"] if one["class"].startswith("03") and not one["boot_vga"]]
        selectors = [{"id": ids} for ids in sorted({f"{one['vendor']}:{one['device']}" for one in displays})]
    return parse_declaration([{"resource": RESOURCE, "select": selectors}])


def _plan(document: Document, kernel: FakeKernel) -> bound.BoundPlan:
    return bound.plan_bound(kernel.root, declared(document), bound.Wishes())


def _target(document: Document, kernel: FakeKernel, _want: Any) -> list[str]:
    return [str(member.address) for claim in _plan(document, kernel).claims for member in claim.members if member.part == "selected"]


def _by_id(document: Document, kernel: FakeKernel, _want: Any = None) -> list[str]:
    target = expected(document)["target"]
    ids = [{"id": read_function(kernel.root, Address.parse(address)).id} for address in target]
    found = find(kernel.root, parse_declaration([{"resource": RESOURCE, "select": ids}]))
    return [str(function.address) for _entry, function in found if str(function.address) not in target]


def _together(document: Document, kernel: FakeKernel, _want: Any) -> list[str]:
    return [str(one.address) for claim in _plan(document, kernel).claims for one in claim.functions]


def _stays(document: Document, kernel: FakeKernel, want: Any) -> list[str]:
    moved = _together(document, kernel, want)
    groups = [read_group(kernel.root, claim.group) for claim in _plan(document, kernel).claims]
    return [str(one.address) for group in groups for one in group.members if str(one.address) not in moved]


def _viable(document: Document, kernel: FakeKernel, _want: Any) -> bool:
    plan = _plan(document, kernel)
    bound.check_bound(plan)
    bound.apply_bound(kernel.root, plan)
    return not any(one.blocks_group for claim in plan.claims for one in read_group(kernel.root, claim.group).endpoints)


def _arguments(_document: Document, kernel: FakeKernel, _want: Any) -> list[str]:
    state = read_state(kernel.root)
    line = parse(" ".join(state.arguments))
    return list(needed(state, line, [line]).add)


def _verdict(document: Document, kernel: FakeKernel, _want: Any) -> str:
    return "refuse" if bound.as_fault(_plan(document, kernel)) else "go"


def _reasons(document: Document, kernel: FakeKernel, want: list[str]) -> list[str]:
    text = "\n".join(one.text() for one in _plan(document, kernel).refused)
    return [words for words in want if words in text] if all(words in text for words in want) else [text]


def _advice(document: Document, kernel: FakeKernel, want: str) -> str:
    hints = "\n".join(one.hint for one in _plan(document, kernel).refused)
    return want if want in hints else hints


def _units(document: Document, kernel: FakeKernel, _want: Any) -> int:
    return len(read_inventory(kernel.root, declared(document)).units)


def _companions(document: Document, kernel: FakeKernel, _want: Any) -> list[str]:
    return [str(one.address) for unit in read_inventory(kernel.root, declared(document)).units for one in unit.companions]


def _functions(document: Document, kernel: FakeKernel, want: Any) -> int:
    return len(_together(document, kernel, want))


LOOKS: dict[str, Callable[[Document, FakeKernel, Any], Any]] = {
    "target": _target,
    "by_id_would_also_take": _by_id,
    "static_ids_allowed": lambda document, kernel, _want: not _by_id(document, kernel),
    "must_move_together": _together,
    "stays_on_host": _stays,
    "group_viable_after": _viable,
    "kernel_args_needed": _arguments,
    "verdict": _verdict,
    "reasons": _reasons,
    "advice": _advice,
    "units": _units,
    "companions": _companions,
    "resources_wanted": _units,
    "resources_if_plugin_counts_every_function": _functions,
}

"""What the discovery files have in common: a tree and a configuration to plugins, skipped devices and Allocate answers.

Used by the adapters of pci-discovery, mdev-discovery and usb-discovery; any of them may hold devices of every kind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import MDEV, PCI, USB, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import Skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.allocation import Allocator
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import container_answer, device
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import socket_file
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GRANTS = "/run/grants"
_WANT, _ANSWERS = {"plugins", "skipped", "refused"}, ({"container_responses"}, {"refused"})
_FILES = {"numa_node": "numa_node", "sriov_totalvfs": "sriov_totalvfs", "nvidia_current_vgpu_type": "nvidia/current_vgpu_type"}
_FIELDS = {
    "pci": {"address", "uevent", "driver", "iommu_group", "real_dir", "vfio_dev", "vfio_dev_dir", *_FILES},
    "mdev": {"uuid", "type_id", "name", "parent", "iommu_group", "real_dir"},
    "usb": {"name", "uevent", "has_idVendor", "serial"},
}
_INPUT = {"permittedHostDevices", "vfio_nodes", *_FIELDS}
# KubeVirt's random ids are replaced by id_contains, and of a USB device only three values are compared
_NOT_COMPARED = ("id_prefix", "id_random_chars", "id_suffix", "id_contains")
_USB_VALUES = ("bus", "device", "path")

Answers = list[dict[str, Any]]


def cases(document: Mapping[str, Any], section: str = "cases") -> Iterator[Case]:
    """Yield one case per tree and one per Allocate call; what needs an unknown field is not known."""
    for case in document.get(section, ()):
        given, want = case.get("input", {"": ""}), wanted(case)
        known = is_known(given)
        yield Case(case["name"], partial(check, given, want) if known and set(want) and set(want) <= _WANT else None)
        for number, call in enumerate(case.get("allocate", ())):
            asked = wanted(call)
            yield Case(
                f"{case['name']}, allocate {number}", partial(_check_call, given, call, asked) if known and is_answer(asked) else None
            )


def wanted(case: Mapping[str, Any]) -> Any:
    """Return what a case wants, whichever of the three names it stands under."""
    return case.get("want", case.get("expected", case.get("expected_kubevirt"))) or {}


def is_known(given: Mapping[str, Any]) -> bool:
    """Return whether all of a case's input means something here."""
    rows = all(set(one) <= fields for name, fields in _FIELDS.items() for one in given.get(name) or ())
    return "permittedHostDevices" in given and set(given) <= _INPUT and rows


def is_answer(want: Mapping[str, Any]) -> bool:
    """Return whether this is what an Allocate call may be compared with."""
    return set(want) in _ANSWERS


def check(given: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Compare the plugins of a tree, and what is skipped where the case tells it."""
    try:
        declaration = parse_declaration(permitted=given["permittedHostDevices"])
    except Fault as fault:
        same_refusal(fault, want)
        return
    with tree(given) as host:
        offers, skipped = find(host.root, declaration).offers, find_skipped(host.root, declaration)
    resources = dict.fromkeys(offer.resource for offer in offers)
    got = {resource: _plugin(resource, [offer for offer in offers if offer.resource == resource]) for resource in resources}
    theirs = {str(one["resource"]): one for one in want.get("plugins", ())}
    same({name: got[name] for name in sorted(got)}, {name: _ordered(theirs[name]) for name in sorted(theirs)})
    for name, one in theirs.items():
        _check_ids([offer for offer in offers if offer.resource == name], one)
    if "skipped" in want:
        _check_skipped(skipped, want["skipped"])


def _check_call(given: Mapping[str, Any], call: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    with tree(given) as host:
        declaration = parse_declaration(permitted=given["permittedHostDevices"])

        def look() -> tuple[Offer, ...]:
            return tuple(offer for offer in find(host.root, declaration).offers if offer.resource == call["resource"])

        offers = look()
        left: list[str] | None = given.get("vfio_nodes")
        if left is not None:
            for node in (host.base / "dev/vfio").iterdir():
                if node.is_file() and node.name not in {"vfio", *left}:
                    node.unlink()
        check_allocate(host, call["resource"], call["containers"], offers, look, want)


def check_allocate(
    host: FakeHost, resource: str, containers: Any, offers: Sequence[Offer], look: Callable[[], Sequence[Offer]], want: Mapping[str, Any]
) -> None:
    """Compare the answer, or the refusal, to an Allocate call; offers are those that were listed, look gives those of now."""

    def known(found: Sequence[Offer]) -> dict[str, Offer]:
        return {offer.id: offer for offer in found}

    allocator = Allocator(
        host.root, resource, lambda: known(offers), lambda: known(look()), lambda ids, of: container_answer(resource, ids, of, GRANTS)
    )
    try:
        made = allocator(containers)
    except Fault as fault:
        same_refusal(fault, want)
        return
    same(
        {"container_responses": [response(one) for one in made]},
        {"container_responses": [response(one) for one in want.get("container_responses", ())]},
    )


def response(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container response without the mounts of grant folders, each node once."""
    nodes = {(one["container_path"], one["host_path"], one["permissions"]) for one in answer.get("devices") or ()}
    mounts = [one for one in answer.get("mounts") or () if not one["host_path"].startswith(f"{GRANTS}/")]
    return {"envs": dict(answer.get("envs") or {}), "devices": sorted(nodes), "mounts": mounts}


def same_refusal(fault: Fault, want: Mapping[str, Any]) -> None:
    """Raise AssertionError unless a refusal was wanted whose words stand in the fault."""
    words = want.get("refused")
    same(want if words is not None and words.lower() in str(fault).lower() else {"refused": str(fault)}, want)


@contextmanager
def tree(given: Mapping[str, Any]) -> Iterator[FakeHost]:
    """Make the host of a case's input in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(Path(folder))
        host.node("vfio")
        for name, add in (("pci", _add_function), ("mdev", _add_mdev), ("usb", _add_usb)):
            for one in given.get(name) or ():
                add(host, one)
        yield host


def _add_function(host: FakeHost, one: Mapping[str, Any]) -> None:
    folder = host.function(
        one["address"],
        driver=one.get("driver") or "",
        group=one.get("iommu_group") or "",
        files={place: one[name] for name, place in _FILES.items() if one.get(name) is not None},
        uevent=one.get("uevent") or "",
        real_folder=bool(one.get("real_dir")),
    )
    if one.get("vfio_dev_dir") or one.get("vfio_dev"):
        (folder / "vfio-dev").mkdir()
    for name in one.get("vfio_dev") or ():
        (folder / "vfio-dev" / name).mkdir()
        host.node(f"devices/{name}")
    if one.get("iommu_group"):
        host.node(one["iommu_group"])


def _add_mdev(host: FakeHost, one: Mapping[str, Any]) -> None:
    group = one.get("iommu_group") or ""
    real = bool(one.get("real_dir"))
    host.mdev(one["uuid"], one.get("type_id") or "", one.get("name"), parent=one["parent"], group=group, real_folder=real)
    if group:
        host.node(group)


def _add_usb(host: FakeHost, one: Mapping[str, Any]) -> None:
    folder = host.usb(one["name"], uevent=one.get("uevent") or "", serial=one.get("serial") or "")
    if not one.get("has_idVendor"):
        (folder / "idVendor").unlink()
    for line in (one.get("uevent") or "").splitlines():
        name, _mark, value = line.partition("=")
        if name == "DEVNAME":
            host.write(f"/dev/{value}", "")


def _plugin(resource: str, offers: Sequence[Offer]) -> dict[str, Any]:
    folder = Path(PluginOptions().plugin_folder)
    made = {
        "kind": offers[0].kind,
        "resource": resource,
        "socket": str(folder / socket_file(folder, resource)),
        "devices": [_SHAPES[offer.kind](offer) for offer in offers],
    }
    names = {PCI: "id_to_address", MDEV: "id_to_uuid"}.get(offers[0].kind)
    return _ordered({**made, names: {offer.id: offer.name for offer in offers}} if names else made)


def _listed(offer: Offer) -> dict[str, Any]:
    made = device(offer)
    topology = made.pop("topology", None)
    return {**made, "numa_nodes": None if topology is None else [node["ID"] for node in topology["nodes"]]}


def _usb_unit(offer: Offer) -> dict[str, Any]:
    made = {name: value for name, value in _listed(offer).items() if name != "ID"}
    return {**made, "usb": _usb_members(offer)}


def _usb_members(offer: Offer) -> list[dict[str, Any]]:
    places = [value.split(":") for value in offer.values]
    return [{"bus": int(bus), "device": int(number), "path": node} for (bus, number), node in zip(places, offer.required)]


_SHAPES: dict[str, Callable[[Offer], dict[str, Any]]] = {PCI: _listed, MDEV: _listed, USB: _usb_unit}


def _ordered(plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plugin in the one form that is compared: units in an order that both sides have."""
    units = []
    for one in plugin["devices"]:
        unit = {name: value for name, value in one.items() if name not in _NOT_COMPARED}
        if "usb" in unit:
            unit["usb"] = [{name: member[name] for name in _USB_VALUES} for member in unit["usb"]]
        units.append(unit)
    return {**plugin, "devices": sorted(units, key=lambda unit: str(unit.get("ID", unit.get("usb"))))}


def _check_ids(offers: Sequence[Offer], plugin: Mapping[str, Any]) -> None:
    """Compare the texts that have to stand in the ids of USB units; units are matched by their devices."""
    ids = {str([member["path"] for member in _usb_members(offer)]): offer.id for offer in offers if offer.kind == USB}
    for unit in plugin["devices"]:
        if "id_contains" in unit:
            found = ids[str([member["path"] for member in unit["usb"]])]
            same([text for text in unit["id_contains"] if text not in found] and f"{found} lacks some of {unit['id_contains']}", [])


def _check_skipped(skipped: Sequence[Skipped], want: Sequence[Mapping[str, str]]) -> None:
    got = [{"address": str(one.address), "reason": one.reason} for one in skipped]
    same(got, [{"address": one["address"], "reason": one["reason"]} for one in want])
    for ours, theirs in zip(skipped, want):
        missing = [word for word in theirs.get("detail", "").split() if word not in ours.detail]
        same(missing and f"{ours.detail} has no {missing}", [])

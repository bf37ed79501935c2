"""Adapter of pci-discovery.json: trees and a configuration to plugins, skipped devices and Allocate answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import Skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.offer import Offer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import allocate, device
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import socket_file
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

SECTIONS = ("cases",)
_GRANTS = "/run/grants"
_INPUT = {"permittedHostDevices", "pci"}
_WANT, _ANSWERS = {"plugins", "skipped", "refused"}, ({"container_responses"}, {"refused"})
_FILES = {"numa_node": "numa_node", "sriov_totalvfs": "sriov_totalvfs", "nvidia_current_vgpu_type": "nvidia/current_vgpu_type"}
_FIELDS = {"address", "uevent", "driver", "iommu_group", "real_dir", "vfio_dev", "vfio_dev_dir", *_FILES}


def cases(document: dict[str, Any]) -> Iterator[Case]:
    """Yield one case per tree and one per Allocate call; what needs an unknown field is not known."""
    for case in document.get("cases", ()):
        given, want = case.get("input", {"": ""}), _wanted(case)
        known = set(given) <= _INPUT and all(set(one) <= _FIELDS for one in given.get("pci") or ())
        yield Case(case["name"], partial(_check, given, want) if known and set(want) and set(want) <= _WANT else None)
        for number, call in enumerate(case.get("allocate", ())):
            name = f"{case['name']}, allocate {number}"
            asked = _wanted(call)
            yield Case(name, partial(_check_call, given, call, asked) if known and set(asked) in _ANSWERS else None)


def _wanted(case: Mapping[str, Any]) -> Any:
    return case.get("want", case.get("expected", case.get("expected_kubevirt"))) or {}


def _check(given: dict[str, Any], want: dict[str, Any]) -> None:
    try:
        declaration = parse_declaration(permitted=given["permittedHostDevices"])
    except Fault as fault:
        _refused(fault, want)
        return
    offers, skipped = _look(given, declaration)
    same(
        {"plugins": sorted(_plugins(offers), key=_resource)},
        {"plugins": sorted(map(_ordered, want.get("plugins", [])), key=_resource)},
    )
    if "skipped" in want:
        _check_skipped(skipped, want["skipped"])


def _check_call(given: dict[str, Any], call: dict[str, Any], want: dict[str, Any]) -> None:
    try:
        offers, _skipped = _look(given, parse_declaration(permitted=given["permittedHostDevices"]))
        mine = {offer.id: offer for offer in offers if offer.resource == call["resource"]}
        made = allocate(call["resource"], call["containers"], mine, _GRANTS)
    except Fault as fault:
        _refused(fault, want)
        return
    same(
        {"container_responses": [_response(one) for one in made]},
        {"container_responses": [_response(one) for one in want.get("container_responses", ())]},
    )


def _look(given: dict[str, Any], declaration: Declaration) -> tuple[tuple[Offer, ...], tuple[Skipped, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(Path(folder))
        host.node("vfio")
        for one in given.get("pci") or ():
            _add(host, one)
        return find(host.root, declaration).offers, find_skipped(host.root, declaration)


def _add(host: FakeHost, one: dict[str, Any]) -> None:
    files = {place: one[name] for name, place in _FILES.items() if one.get(name) is not None}
    folder = host.function(
        one["address"],
        driver=one.get("driver") or "",
        group=one.get("iommu_group") or "",
        files=files,
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


def _plugins(offers: Sequence[Offer]) -> list[dict[str, Any]]:
    made = []
    for resource in dict.fromkeys(offer.resource for offer in offers):
        mine = [offer for offer in offers if offer.resource == resource]
        folder = Path(PluginOptions().plugin_folder)
        made.append(
            {
                "kind": mine[0].kind,
                "resource": resource,
                "socket": str(folder / socket_file(folder, resource)),
                "devices": [_device(offer) for offer in mine],
                "id_to_address": {offer.id: offer.name for offer in mine},
            }
        )
    return [_ordered(one) for one in made]


def _device(offer: Offer) -> dict[str, Any]:
    made = device(offer)
    topology = made.pop("topology", None)
    return {**made, "numa_nodes": None if topology is None else [node["ID"] for node in topology["nodes"]]}


def _ordered(plugin: dict[str, Any]) -> dict[str, Any]:
    return {**plugin, "devices": sorted(plugin["devices"], key=lambda one: str(one["ID"]))}


def _resource(plugin: dict[str, Any]) -> str:
    return str(plugin["resource"])


def _response(answer: Mapping[str, Any]) -> dict[str, Any]:
    nodes = {(one["container_path"], one["host_path"], one["permissions"]) for one in answer.get("devices") or ()}
    mounts = [one for one in answer.get("mounts") or () if not one["host_path"].startswith(f"{_GRANTS}/")]
    return {"envs": dict(answer.get("envs") or {}), "devices": sorted(nodes), "mounts": mounts}


def _check_skipped(skipped: Sequence[Skipped], want: list[dict[str, str]]) -> None:
    got = [{"address": str(one.address), "reason": one.reason} for one in skipped]
    same(got, [{"address": one["address"], "reason": one["reason"]} for one in want])
    for ours, theirs in zip(skipped, want):
        missing = [word for word in theirs.get("detail", "").split() if word not in ours.detail]
        same(missing and f"{ours.detail} has no {missing}", [])


def _refused(fault: Fault, want: dict[str, Any]) -> None:
    words = want.get("refused")
    same(want if words is not None and words.lower() in str(fault).lower() else {"refused": str(fault)}, want)

"""Adapter of iommufd.json: what a case's name tells as state and steps of the service, and what is listed, registered and answered."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import IOMMUFD
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.options import PluginOptions
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from ansible_collections.vfio.passthrough.tests.fakes.kubelet import until
from ansible_collections.vfio.passthrough.tests.fakes.plugin import PluginBench

SECTIONS = ("cases",)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_RESPONSE = {"devices", "mounts", "envs"}


@dataclass(frozen=True)
class Scene:
    """What a name tells. containers: how many ask in one call, 0 for no call."""

    count: int = 10
    absent: bool = False
    fails: bool = False
    containers: int = 0


def scene(name: str) -> Scene | None:
    """Return what a name tells; None when some words of it mean nothing here."""
    text = re.sub("|".join(rf"\b{word}\b" for word in _NUMBERS), lambda found: str(_NUMBERS[found[0]]), name.lower())
    call = re.fullmatch(r"allocate(?: response)?(?:, (?P<containers>\d+) containers?)?(?:, (?P<rest>.*))?", text)
    listed = re.fullmatch(r"(?P<count>\d+) devices?(?:, (?P<rest>.*))?", text)
    rest = ((call or listed or {"rest": text})["rest"] or "").strip()
    if rest and not re.fullmatch(r"/dev/iommu (is )?absent.*|(open|ioctl|open or ioctl) fails", rest):
        return None
    return Scene(
        count=int(listed["count"]) if listed else Scene.count,
        absent="absent" in rest,
        fails="fails" in rest,
        containers=int(call["containers"] or 1) if call else 0,
    )


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield one case per scene; those that are told in sentences have tests of their own."""
    for case in document.get("cases", ()):
        want, told = case.get("want", case.get("expected")), scene(case["name"])
        looks = _look(want, told) if told and "by_hand" not in case else None
        yield Case(case["name"], partial(_check, told, looks, want) if told and looks else None)


def _look(want: Any, told: Scene) -> Callable[[PluginBench, Scene, Any], Any] | None:
    """Return what gives the value to compare, by the shape of what is wanted."""
    if isinstance(want, list):
        return _lists
    shape = set(want) if isinstance(want, dict) else {""}
    if shape <= {"count", "ids", "health_at_construction", "resource", "socket"}:
        return _registered
    if not told.containers:
        return None
    if shape == {"refused"}:
        return _refusal
    if shape <= {"container_responses", "mounts_each", "distinct_host_paths"}:
        return _counted
    return _response if shape <= _RESPONSE else None


def _check(told: Scene, look: Callable[[PluginBench, Scene, Any], Any], want: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="i") as folder:
        bench = PluginBench(Path(folder), (IOMMUFD,))
        bench.declare({"resource": bench.resources[IOMMUFD], "node": "/dev/iommu", "count": told.count})
        bench.iommu_works = not told.fails
        if told.absent:
            (bench.host.base / "dev/iommu").unlink()
        bench.kubelet.start()
        bench.start()
        try:
            until(lambda: bench.kubelet.lists, "the first list")
            same(look(bench, told, want), _plain(want))
        finally:
            bench.stop()
            bench.kubelet.stop()


def _plain(want: Any) -> Any:
    """Return what is wanted without the host's side of the mounts, which is ours to choose."""
    if isinstance(want, dict) and isinstance(want.get("mounts"), list):
        return {**want, "mounts": [{name: value for name, value in one.items() if name != "host_path"} for one in want["mounts"]]}
    return want


def _lists(bench: PluginBench, _told: Scene, _want: Any) -> list[str]:
    lists = [sorted(set(one.values())) for one in bench.kubelet.lists]
    return [f"all {one[0]}" if len(one) == 1 else " and ".join(one) for n, one in enumerate(lists) if n == 0 or lists[n - 1] != one]


def _registered(bench: PluginBench, _told: Scene, want: dict[str, Any]) -> dict[str, Any]:
    request, first = bench.kubelet.registrations[0], bench.kubelet.lists[0]
    ids = list(first)
    found = {
        "count": len(first),
        "ids": [ids[0], "...", ids[-1]] if "..." in want.get("ids", ()) else ids,
        "health_at_construction": "/".join(sorted(set(first.values()))),
        "resource": request.resource_name,
        "socket": f"{PluginOptions().plugin_folder}/{request.endpoint}",
    }
    return {name: found[name] for name in want}


def _asked(bench: PluginBench, told: Scene) -> list[Any]:
    ids = list(bench.kubelet.lists[0])
    return bench.kubelet.allocate(*([one] for one in ids[: told.containers]))


def _refusal(bench: PluginBench, told: Scene, want: dict[str, str]) -> dict[str, Any]:
    try:
        _asked(bench, told)
    except grpc.RpcError as error:
        said = str(error.details())
        return want if want["refused"] in said else {"refused": said}
    return {"refused": None}


def _mounts(bench: PluginBench, answer: Any) -> list[Any]:
    """Return the mounts but those of grant folders; each of the others has a socket that waits."""
    mounts = [one for one in answer.mounts if not one.host_path.startswith(f"{bench.options.grants}/")]
    same([one.host_path for one in mounts if not Path(one.host_path).is_socket()], [])
    return mounts


def _counted(bench: PluginBench, told: Scene, want: dict[str, int]) -> dict[str, Any]:
    made = [_mounts(bench, one) for one in _asked(bench, told)]
    counts = {len(one) for one in made}
    found = {
        "container_responses": len(made),
        "mounts_each": counts.pop() if len(counts) == 1 else sorted(counts),
        "distinct_host_paths": len({mount.host_path for one in made for mount in one}),
    }
    return {name: found[name] for name in want}


def _response(bench: PluginBench, told: Scene, want: dict[str, Any]) -> dict[str, Any]:
    (answer,) = _asked(bench, told)
    nodes = [{name: getattr(one, name) for name in ("host_path", "container_path", "permissions")} for one in answer.devices]
    mounts = [{name: getattr(one, name) for name in ("container_path", "read_only")} for one in _mounts(bench, answer)]
    found = {"devices": nodes, "mounts": mounts, "envs": dict(answer.envs)}
    return {name: found[name] for name in want}

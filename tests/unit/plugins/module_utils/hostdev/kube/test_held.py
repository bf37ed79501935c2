"""What containers hold, over made stores of the kubelet."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import Place
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.held import held_places
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import device_plugin

GRANTS = "/run/vfio-passthrough/grant"


def stored(*paths: str) -> str:
    mounts = [{"container_path": path, "host_path": path, "read_only": True} for path in paths]
    message = device_plugin()["ContainerAllocateResponse"](envs={"A": "b"}, mounts=mounts)
    return base64.b64encode(message.SerializeToString()).decode()


def entry(resource: str, answer: str | None) -> dict[str, Any]:
    return {"PodUID": "u", "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"-1": ["16"]}, "AllocResp": answer}


def write(folder: Path, content: object) -> Path:
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps(content), encoding="utf-8")
    return folder


def store(entries: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}


def test_every_folder_of_ours_in_a_stored_answer_is_held(tmp_path: Path) -> None:
    entries = [
        entry("example.com/gpu", stored(f"{GRANTS}/EXAMPLE_COM_GPU/16", f"{GRANTS}/EXAMPLE_COM_GPU/17", "/etc/other")),
        entry("example.com/nic", stored("/dev/shm/other")),
    ]
    assert held_places(write(tmp_path, store(entries)), GRANTS) == [
        Place("example.com/gpu", unit, f"{GRANTS}/EXAMPLE_COM_GPU/{unit}", (), (), served=False) for unit in ("16", "17")
    ]


@pytest.mark.parametrize(
    "path",
    [
        GRANTS, f"{GRANTS}/X", f"{GRANTS}/X/1/2", f"{GRANTS}/X/..", f"{GRANTS}/../1", f"{GRANTS}//X/1", f"{GRANTS}/X/1/", f"{GRANTS}2/X/1",
        "", "X/1",
    ],
)  # fmt: skip
def test_no_other_path_is(tmp_path: Path, path: str) -> None:
    assert held_places(write(tmp_path, store([entry("example.com/gpu", stored(path))])), GRANTS) == []


@pytest.mark.parametrize("answer", [None, "", "%", base64.b64encode(b"\xff\xff\xff").decode()])
def test_a_broken_answer_is_passed_over(tmp_path: Path, answer: str | None) -> None:
    entries = [entry("example.com/gpu", answer), {}, entry("example.com/gpu", stored(f"{GRANTS}/X/1"))]
    assert [place.folder for place in held_places(write(tmp_path, store(entries)), GRANTS) or ()] == [f"{GRANTS}/X/1"]


@pytest.mark.parametrize("entries", [None, []])
def test_an_empty_store_says_that_nothing_is_held(tmp_path: Path, entries: list[dict[str, Any]] | None) -> None:
    assert held_places(write(tmp_path, store(entries)), GRANTS) == []


@pytest.mark.parametrize("content", [{}, [], "x", {"Data": None}, {"Data": {}}, {"Data": "x"}])
def test_an_unreadable_store_says_nothing(tmp_path: Path, content: object) -> None:
    assert held_places(write(tmp_path, content), GRANTS) is None


def test_an_absent_store_says_nothing(tmp_path: Path) -> None:
    assert held_places(tmp_path, GRANTS) is None
    (tmp_path / "kubelet_internal_checkpoint").write_text("{", encoding="ascii")
    assert held_places(tmp_path, GRANTS) is None

"""The device plugin API's messages, byte for byte against what the official stubs send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import wire
from google.protobuf import json_format

FILE = Path(__file__).parents[5] / "cases/data/wire-vectors.json"
VECTORS = [one for one in json.loads(FILE.read_text(encoding="utf-8")) if one["api"] == "deviceplugin/v1beta1"]


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{v['message']}-{i}" for i, v in enumerate(VECTORS)])
def test_messages_have_the_official_bytes(vector: dict[str, Any]) -> None:
    messages = wire.device_plugin()
    kind = vector["message"].partition(".")[2]
    made = json_format.ParseDict(vector["json"], messages[kind]())
    assert made.SerializeToString(deterministic=True).hex() == vector["hex"]
    again = messages.decoder(kind)(bytes.fromhex(vector["hex"]))
    assert again == made


def test_a_method_names_messages_of_its_table() -> None:
    for methods in wire.DEVICE_PLUGIN.methods.values():
        for request, response in methods.values():
            assert request in wire.DEVICE_PLUGIN.messages
            assert response.replace("stream ", "") in wire.DEVICE_PLUGIN.messages
    assert wire.DEVICE_PLUGIN.path("DevicePlugin", "Allocate") == "/v1beta1.DevicePlugin/Allocate"


def test_two_apis_of_one_package_live_side_by_side() -> None:
    one = wire.Messages(wire.Api("v1", {"Device": (("a", 1, "map int64"), ("b", 2, "repeated Device"))}))
    two = wire.Messages(wire.Api("v1", {"Device": (("other", 7, "bytes"),)}))
    made = one["Device"](a={"x": 3}, b=[{"a": {"y": 4}}])
    assert one.decoder("Device")(one.encoder()(made)).b[0].a["y"] == 4
    assert two["Device"](other=b"z").SerializeToString() == b"\x3a\x01z"

"""Adapter of wire.json: the rows of our tables against the fields of each message, for the APIs that we have whole tables of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN, Api
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS: tuple[str, ...] = ()
_APIS = {"deviceplugin/v1beta1": DEVICE_PLUGIN}


def cases(document: list[dict[str, Any]]) -> Iterator[Case]:
    """Yield one case per message of a method and per nested message."""
    for number, entry in enumerate(document):
        api = _APIS.get(entry["api"])
        yield Case(f"{number} {entry['message']}", partial(_check, api, entry) if api else None)


def _check(api: Api, entry: dict[str, Any]) -> None:
    name = entry["message"].rpartition(".")[2]
    same(sorted(api.messages[name]), sorted((field["name"], field["number"], _type(field)) for field in entry["fields"]))
    if entry.get("method"):
        service = entry["service"].rpartition(".")[2]
        asked, answered = api.methods[service][entry["method"]]
        streamed = f"stream {name}" if entry["streaming"] else name
        same(api.path(service, entry["method"]), entry["path"])
        same(asked if entry["role"] == "request" else answered, streamed)


def _type(field: dict[str, Any]) -> str:
    kind = str(field["type"])
    if kind.startswith("map<"):
        return f"map {field['map']['value']['type'].rpartition('.')[2]}"
    plain = kind.rpartition(".")[2]
    return f"repeated {plain}" if field["repeated"] else plain

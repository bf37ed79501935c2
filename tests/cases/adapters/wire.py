"""Adapter of wire.json: the rows of our tables against the fields of each message.

Of an API that we only read, our table may leave fields and messages out; what it has is compared, and what it has not is not
known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.podresources import POD_RESOURCES
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN, Api
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same

SECTIONS: tuple[str, ...] = ()
_APIS = {"deviceplugin/v1beta1": DEVICE_PLUGIN, "podresources/v1": POD_RESOURCES}
_READ = {"podresources/v1"}


def cases(document: list[dict[str, Any]]) -> Iterator[Case]:
    """Yield one case per message of a method and per nested message."""
    for number, entry in enumerate(document):
        api, name = _APIS.get(entry["api"]), entry["message"].rpartition(".")[2]
        known = api and (name in api.messages or entry["api"] not in _READ)
        yield Case(f"{number} {entry['message']}", partial(_check, api, entry, name) if api and known else None)


def _check(api: Api, entry: dict[str, Any], name: str) -> None:
    ours = set(api.messages[name])
    theirs = {(field["name"], field["number"], _type(field)) for field in entry["fields"]}
    same(sorted(ours), sorted(theirs & ours if entry["api"] in _READ else theirs))
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

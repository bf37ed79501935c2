"""Adapter of wire-vectors.json: messages as JSON against their bytes, for the APIs that we have tables of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import wire
from ansible_collections.vfio.passthrough.tests.cases.runner import Case, same
from google.protobuf import json_format

SECTIONS: tuple[str, ...] = ()
_APIS = {"deviceplugin/v1beta1": wire.device_plugin}


def cases(document: list[dict[str, Any]]) -> Iterator[Case]:
    """Yield one case per message."""
    for number, vector in enumerate(document):
        known = vector["api"] in _APIS
        yield Case(f"{number} {vector['message']}", partial(_check, vector) if known else None)


def _check(vector: dict[str, Any]) -> None:
    messages = _APIS[vector["api"]]()
    name = vector["message"].rpartition(".")[2]
    made = json_format.ParseDict(vector["json"], messages[name]())
    same(made.SerializeToString(deterministic=True).hex(), vector["hex"])
    same(messages.decoder(name)(bytes.fromhex(vector["hex"])) == made, True)

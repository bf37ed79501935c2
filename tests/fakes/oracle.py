"""KubeVirt's own launcher, asked which host devices it makes of a machine's description and its container's variables."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, final

from ..harness import programs


@dataclass(frozen=True)
class HostDevice:
    """What matters of a <hostdev>: its type, its alias without "ua-", and its source's address (USB numbers as written)."""

    type: str
    alias: str
    source: str


@final
class Oracle:
    """The program; `ask` may be called any number of times."""

    def __init__(self) -> None:
        command = [str(programs.oracle())]
        # what it logs is not wanted: variables of other kinds that are absent, at every call
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def ask_of(self, devices: Mapping[str, Any], env: Mapping[str, str], network_info: str = "") -> dict[str, Any]:
        """Return {"devices": [XML, ...]}, {"error": text} or {"panic": text} for a machine's spec.domain.devices.

        network_info: the content of the file of that name, from which SR-IOV interfaces have their function.
        """
        question = {"vmi": {"spec": {"domain": {"devices": devices}}}, "env": dict(env), "networkInfo": network_info}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def ask(self, env: Mapping[str, str], host_devices: Sequence[str] = (), gpus: Sequence[str] = ()) -> dict[str, Any]:
        """Return ask_of's answer for a machine that asks for these resources, one entry each: h0, h1, ... and g0, g1, ..."""
        lists = {"hostDevices": ("h", host_devices), "gpus": ("g", gpus)}
        devices = {
            key: [{"name": f"{letter}{number}", "deviceName": resource} for number, resource in enumerate(resources)]
            for key, (letter, resources) in lists.items()
        }
        return self.ask_of(devices, env)

    def devices(self, env: Mapping[str, str], host_devices: Sequence[str] = (), gpus: Sequence[str] = ()) -> list[HostDevice]:
        """Return what `ask` answers, as values; an assertion error with KubeVirt's words when it refuses."""
        answer = self.ask(env, host_devices, gpus)
        assert "error" not in answer, answer
        return [_read(ET.fromstring(text)) for text in answer["devices"]]


def _read(element: ET.Element) -> HostDevice:
    alias, address = element.find("alias"), element.find("source/address")
    assert alias is not None and address is not None
    kind, given = element.get("type", ""), address.attrib
    source = {
        "pci": lambda: f"{given['domain'][2:]}:{given['bus'][2:]}:{given['slot'][2:]}.{given['function'][2:]}",
        "mdev": lambda: given["uuid"],
        "usb": lambda: f"{given['bus']}:{given['device']}",
    }[kind]()
    return HostDevice(kind, alias.get("name", "").removeprefix("ua-"), source)

"""The module domain_xml: its result, its file, and check mode that writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.domain_xml import domain_xml
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.manifests import COMPANIONS, RESOURCE, VARIABLE, machine, with_gpus

VARIABLES = {VARIABLE: "0000:81:00.0", COMPANIONS: "0000:81:00.0=0000:81:00.1"}


def given(**changes: Any) -> dict[str, Any]:
    return {"definition": with_gpus("g"), "variables": VARIABLES, "emulation": False, "path": None, **changes}


def test_devices_are_named(tmp_path: Path) -> None:
    result = domain_xml(given(), Root(tmp_path), check=False)
    assert result["devices"] == [
        {
            "name": "g",
            "list": "gpus",
            "kind": "pci",
            "resource": RESOURCE,
            "variable": VARIABLE,
            "alias": "ua-gpu-g",
            "address": "0000:81:00.0",
            "companions": ["0000:81:00.1"],
        }
    ]
    assert (result["changed"], result["diff"]) == (False, [])
    assert list(tmp_path.iterdir()) == []


def test_file_is_kept(tmp_path: Path) -> None:
    root, file = Root(tmp_path), tmp_path / "etc/guest.xml"
    asked = given(path="/etc/guest.xml")
    planned = domain_xml(asked, root, check=True)
    assert planned["changed"]
    assert not file.exists()
    done = domain_xml(asked, root, check=False)
    assert done == planned
    assert file.read_text(encoding="utf-8") == done["xml"]
    assert not domain_xml(asked, root, check=False)["changed"]
    changed = domain_xml(given(path="/etc/guest.xml", emulation=True), root, check=False)
    assert changed["diff"][0]["before"] == done["xml"]


def test_a_virtual_machine_gives_its_runs_domain(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert (
        domain_xml(given(definition=machine(with_gpus("g"), running=False)), root, check=False)["xml"]
        == domain_xml(given(), root, check=False)["xml"]
    )


def test_too_few_addresses(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"{VARIABLE} is not set"):
        domain_xml(given(variables={}), Root(tmp_path), check=False)

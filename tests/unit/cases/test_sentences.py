"""What the case files say in sentences, `also`, of discovery and of the plugin's life; other sentences stand beside what they are about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.answers import allocate
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import socket_file
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

STICK = {"vendor": "46f4", "product": "0001"}
ANOTHER_PROCESS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from hostdev.device.declaration import parse_declaration
from hostdev.kube.kinds import find
from hostdev.root import Root
declaration = parse_declaration([{"resource": "kubevirt.io/storage", "select": {"usb": {"vendor": "46f4", "product": "0001"}}}])
print(" ".join(offer.id for offer in find(Root(base=Path(sys.argv[2])), declaration).offers))
"""


def plugged(base: Path) -> FakeHost:
    host = FakeHost(base)
    host.usb("1-1", device=2, serial="S 1")
    host.usb("1-10", device=4)
    host.usb("1-2", device=3)
    return host


def test_usb_units_have_the_same_ids_at_every_discovery_and_in_every_process(tmp_path: Path) -> None:
    host = plugged(tmp_path)
    declaration = parse_declaration([{"resource": "kubevirt.io/storage", "select": {"usb": STICK}}])
    first = [offer.id for offer in find(host.root, declaration).offers]
    assert len(set(first)) == 3
    assert [offer.id for offer in find(host.root, declaration).offers] == first
    runtime = str(Path(__file__).parents[3] / "plugins/module_utils")
    command = [sys.executable, "-c", ANOTHER_PROCESS, runtime, str(tmp_path)]
    for seed in ("1", "2"):
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        assert done.stdout.split() == first


def test_one_usb_selector_for_two_resources_is_refused_naming_both() -> None:
    entries = [{"resourceName": f"kubevirt.io/{name}", "selectors": [STICK]} for name in ("storage", "other")]
    with pytest.raises(Refused) as caught:
        parse_declaration(permitted={"usb": entries})
    assert "kubevirt.io/storage" in str(caught.value) and "kubevirt.io/other" in str(caught.value)


def test_two_containers_that_ask_for_one_usb_unit_get_its_value_once_each(tmp_path: Path) -> None:
    declaration = parse_declaration([{"resource": "kubevirt.io/storage", "select": {"usb": STICK}}])
    offers = {offer.id: offer for offer in find(plugged(tmp_path).root, declaration).offers}
    one = next(iter(offers))
    for answer in allocate("kubevirt.io/storage", [[one], [one]], offers, "/g"):
        assert answer["envs"] == {"USB_RESOURCE_KUBEVIRT_IO_STORAGE": "1:2"}
        assert [node["host_path"] for node in answer["devices"]] == ["/dev/bus/usb/001/002"]


def test_resources_of_one_name_in_two_domains_have_a_socket_each() -> None:
    folder = Path("/var/lib/kubelet/device-plugins")
    assert socket_file(folder, "a.com/x") != socket_file(folder, "b.com/x")

"""The figures and patterns of limits.json that the device plugin goes by, against what it does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import SOCKET, safe_id, unit_folder
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.inventory import HEALTHY, UNHEALTHY
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import check_resource
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.plugin import socket_file
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.wire import DEVICE_PLUGIN

LIMITS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "cases/data/limits.json").read_text(encoding="utf-8"))
LONGEST_PATH = LIMITS["socket"]["unix_path_max_bytes"]
API = LIMITS["device_plugin"]
ODD = ("a", "A", "0", "-a", "a-", "a-b", "a_b", "a.b", ".a", "a.", "a..b", "a b", "", "é", "a/b")


def is_taken(resource: str) -> bool:
    """Return whether the resource name is accepted."""
    try:
        check_resource(resource, "here")
    except Refused:
        return False
    return True


def test_the_api_has_its_words() -> None:
    assert (DEVICE_PLUGIN.package, HEALTHY, UNHEALTHY) == (API["version"], API["healthy"], API["unhealthy"])


@pytest.mark.parametrize("length", range(1, 200, 7))
def test_no_sockets_path_is_too_long_to_bind(length: int) -> None:
    folder, resource = Path("/var/lib/kubelet/device-plugins"), f"example.com/{'n' * length}"
    assert len(f"{folder}/.{socket_file(folder, resource)}".encode()) <= LONGEST_PATH
    assert len(f"{unit_folder(resource, '16')}/{SOCKET}".encode()) <= LONGEST_PATH


def test_a_name_stays_whole_up_to_the_longest_path() -> None:
    folder = Path("/plugins")
    fits = LONGEST_PATH - len(f"{folder}/.{socket_file(folder, 'e.com/')}")
    assert socket_file(folder, f"e.com/{'n' * fits}").endswith(f"_{'n' * fits}.sock")
    assert "nnn" not in socket_file(folder, f"e.com/{'n' * (fits + 1)}")


def test_ids_are_as_long_as_documented_and_no_longer() -> None:
    longest = API["device_id_max_chars_documented"]
    assert safe_id("s" * longest) == "s" * longest
    assert len(safe_id("s" * (longest + 1))) == longest


def test_resource_names_are_as_long_as_kubernetes_takes_and_no_longer() -> None:
    longest = API["resource_name_part_max"]
    assert is_taken(f"example.com/{'n' * longest}") and not is_taken(f"example.com/{'n' * (longest + 1)}")


@pytest.mark.parametrize("part", ODD)
def test_resource_names_have_the_form_that_kubernetes_asks(part: str) -> None:
    patterns = LIMITS["patterns"]
    assert is_taken(f"example.com/{part}") == bool(re.fullmatch(patterns["extended_resource_name_part"], part))
    assert is_taken(f"{part}/name") == (bool(re.fullmatch(patterns["dns_subdomain"], part)) and "/" not in part)

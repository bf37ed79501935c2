"""What playbooks and roles insist on before they change anything."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT
from jinja2 import Environment


def first_assertion(path: str, *way: str | int) -> dict[str, Any]:
    """Return the assertion that is the first task of a list of tasks in a file; way: where the list stands."""
    found: Any = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    for step in way:
        found = found[step]
    assertion: dict[str, Any] = found[0]["ansible.builtin.assert"]
    return assertion


def holds(assertion: dict[str, Any], variables: dict[str, Any]) -> bool:
    """Return whether an assertion of one condition is true."""
    return bool(Environment(autoescape=True).compile_expression(assertion["that"])(**variables))


@pytest.mark.parametrize(
    ("variables", "goes_on"),
    [
        ({}, False),
        ({"hostdev_hosts": "all"}, False),
        ({"hostdev_devices": []}, True),
        ({"hostdev_permitted_host_devices": {}}, True),
        ({"hostdev_devices": [{"resource": "a.com/x"}]}, True),
    ],
)
def test_site_begins_only_with_a_declaration(variables: dict[str, Any], goes_on: bool) -> None:
    assertion = first_assertion("playbooks/site.yml", 0, "tasks")
    assert holds(assertion, variables) is goes_on
    assert "neither hostdev_devices nor hostdev_permitted_host_devices is defined" in assertion["fail_msg"]


@pytest.mark.parametrize(("image", "goes_on"), [("", False), ("localhost/launcher:1", True)])
def test_an_archive_is_loaded_only_under_a_name(image: str, goes_on: bool) -> None:
    assertion = first_assertion("roles/launcher/tasks/present.yml")
    assert holds(assertion, {"launcher_image": image}) is goes_on
    assert "launcher_image is empty" in assertion["fail_msg"]

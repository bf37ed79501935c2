"""The module kernel_args: options in, one result shape out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.vfio.passthrough.plugins.modules.kernel_args import DOCUMENTATION, RETURN, SPEC, work
from ansible_collections.vfio.passthrough.tests.fakes.grub import Machine


def run(machine: Machine, *, check: bool = False, **given: Any) -> dict[str, Any]:
    params = {name: given.get(name, option["default"]) for name, option in SPEC.items()}
    return work(SimpleNamespace(params=params, check_mode=check), machine.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_documentation_and_spec_agree() -> None:
    documented = yaml.safe_load(DOCUMENTATION)["options"]
    kept = ("type", "elements", "choices", "default")
    assert {name: {key: option[key] for key in kept if key in option} for name, option in documented.items()} == SPEC


def test_the_result_has_the_same_keys_on_every_path(machine: Machine) -> None:
    said, done, again = run(machine, check=True), run(machine), run(machine)
    gone, still = run(machine, state="absent"), run(machine, state="absent")
    documented = set(yaml.safe_load(RETURN)) - {"fault"} | {"changed"}
    assert {frozenset(one) for one in (said, done, again, gone, still)} == {frozenset(documented)}
    assert [one["changed"] for one in (said, done, again, gone, still)] == [True, True, False, True, False]


def test_words_and_removals_reach_the_menu(machine: Machine) -> None:
    result = run(machine, arguments=["pci=realloc"], remove=["quiet"])
    assert (result["added"], result["removed"]) == (["pci=realloc"], ["quiet"])
    assert "quiet" not in machine.menu()

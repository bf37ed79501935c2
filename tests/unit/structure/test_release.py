"""What is said in two places of the collection is the same in both."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.version import __version__
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT, sources


def load(name: str) -> Any:
    """Return a YAML file of the tree."""
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_runtime_has_the_version_of_the_collection() -> None:
    assert __version__ == load("galaxy.yml")["version"]


def test_every_module_is_in_the_action_group() -> None:
    modules = sorted(source.path.rpartition("/")[2][: -len(".py")] for source in sources("plugins/modules"))
    assert sorted(load("meta/runtime.yml").get("action_groups", {}).get("all", [])) == modules


def test_every_action_plugin_has_a_module_of_its_name() -> None:
    modules = {source.path.rpartition("/")[2] for source in sources("plugins/modules")}
    assert {source.path.rpartition("/")[2] for source in sources("plugins/action")} <= modules


def test_certification_needs_no_ignored_sanity_test() -> None:
    assert [path.name for path in (ROOT / "tests/sanity").glob("ignore-*.txt") if path.read_text(encoding="utf-8").strip()] == []

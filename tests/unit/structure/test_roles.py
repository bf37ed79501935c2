"""Each role's defaults, argument specification, names and files say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

FILES = ("README.md", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml")
OUTER = re.compile(r"\bhostdev_[a-z]\w*")


def roles() -> list[Path]:
    """Return the folders of the roles."""
    return sorted(path for path in (ROOT / "roles").glob("*") if path.is_dir())


def load(path: Path) -> Any:
    """Return a YAML file's content, an empty mapping where it does not exist or holds nothing."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None) or {}


def role_faults(role: Path) -> list[str]:
    """Return what does not fit together in a role."""
    faults = [f"{role.name}: lacks {name}" for name in FILES if not (role / name).exists()]
    defaults: dict[str, Any] = load(role / "defaults/main.yml")
    options: dict[str, Any] = load(role / "meta/argument_specs.yml").get("argument_specs", {}).get("main", {}).get("options", {})
    faults += [f"{role.name}: {name} has a default but no specification" for name in sorted(set(defaults) - set(options))]
    for name, option in sorted(options.items()):
        faults += option_faults(role.name, name, option, defaults)
    return faults + [
        f"{role.name}: {name} does not begin with the role's name" for name in defaults if not name.startswith(f"{role.name}_")
    ]


def option_faults(role: str, name: str, option: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Return how one option's specification and default differ."""
    faults = [] if name.startswith(f"{role}_") else [f"{role}: option {name} does not begin with the role's name"]
    faults += [f"{role}: option {name} lacks {key}" for key in ("type", "description") if key not in option]
    if option.get("type") == "list" and "elements" not in option:
        faults.append(f"{role}: option {name} lacks elements")
    if "default" in option and option["default"] != defaults.get(name, "nothing"):
        faults.append(f"{role}: {name} defaults to {defaults.get(name, 'nothing')!r}, its specification says {option['default']!r}")
    if "default" not in option and defaults.get(name) is not None:
        faults.append(f"{role}: {name} defaults to {defaults[name]!r}, its specification names no default")
    return faults


def outer_variable_faults(role: Path) -> list[str]:
    """Return where a role reads a variable of the playbooks instead of its own."""
    files = [path for folder in ("tasks", "handlers", "templates", "defaults", "vars") for path in sorted((role / folder).rglob("*"))]
    texts = [(path, path.read_text(encoding="utf-8")) for path in files if path.is_file()]
    return [f"{path.relative_to(role.parent)}: {found}" for path, text in texts for found in sorted(set(OUTER.findall(text)))]


def test_roles_say_one_thing() -> None:
    faults = [fault for role in roles() for fault in role_faults(role)]
    assert not faults, "\n".join(faults)


def test_roles_read_their_own_variables() -> None:
    faults = [fault for role in roles() for fault in outer_variable_faults(role)]
    assert not faults, "\n".join(faults)


@pytest.fixture(name="role")
def sound_role(tmp_path: Path) -> Path:
    """Return a role that has nothing wrong with it."""
    role = tmp_path / "host"
    for name in FILES:
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text("---\n", encoding="utf-8")
    (role / "defaults").mkdir()
    write(role, {"host_x": 1}, {"host_x": {"type": "int", "description": "A number.", "default": 1}})
    return role


def write(role: Path, defaults: dict[str, Any], options: dict[str, Any]) -> None:
    """Write a role's defaults and specification."""
    (role / "defaults/main.yml").write_text(yaml.safe_dump(defaults), encoding="utf-8")
    specification = {"argument_specs": {"main": {"options": options}}}
    (role / "meta/argument_specs.yml").write_text(yaml.safe_dump(specification), encoding="utf-8")


def test_sound_role_passes(role: Path) -> None:
    assert role_faults(role) == []
    assert outer_variable_faults(role) == []


@pytest.mark.parametrize(
    ("defaults", "options"),
    [
        ({"host_x": 2}, {"host_x": {"type": "int", "description": "A number.", "default": 1}}),
        ({"host_x": 1}, {}),
        ({}, {"host_x": {"type": "int", "description": "A number.", "default": 1}}),
        ({"other_x": 1}, {"other_x": {"type": "int", "description": "A number.", "default": 1}}),
        ({"host_x": 1}, {"host_x": {"description": "A number.", "default": 1}}),
        ({"host_x": []}, {"host_x": {"type": "list", "description": "Numbers.", "default": []}}),
        ({"host_x": 1}, {"host_x": {"type": "int", "description": "A number."}}),
    ],
)
def test_differences_are_seen(role: Path, defaults: dict[str, Any], options: dict[str, Any]) -> None:
    write(role, defaults, options)
    assert role_faults(role)


def test_missing_file_is_seen(role: Path) -> None:
    (role / "README.md").unlink()
    assert role_faults(role) == ["host: lacks README.md"]


def test_outer_variable_is_seen(role: Path) -> None:
    (role / "tasks/main.yml").write_text("- debug: {var: hostdev_devices}\n", encoding="utf-8")
    assert outer_variable_faults(role) == ["host/tasks/main.yml: hostdev_devices"]

"""Write each role's page from its argument specification, so that the two cannot differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .say import say

ROOT = Path(__file__).resolve().parents[2]
SITE = "https://github.com/vfio-passthrough/vfio.passthrough/blob/main"


def specification(role: Path) -> Mapping[str, Any]:
    """Return the role's entry point `main` as argument_specs.yml has it."""
    entries: dict[str, Any] = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    main: dict[str, Any] = entries["main"]
    return main


def paragraphs(text: Any) -> list[str]:
    """Return a description (text or list of texts) as its paragraphs."""
    return [str(part).strip() for part in (text if isinstance(text, list) else [text]) if part]


def kind(option: Mapping[str, Any]) -> str:
    """Return the type as a reader says it: list of str, int."""
    name = str(option.get("type", "str"))
    return f"list of {option['elements']}" if "elements" in option else name


def value(option: Mapping[str, Any]) -> str:
    """Return what holds when the option is not given."""
    if option.get("required"):
        return "required"
    return f"`{json.dumps(option['default'])}`" if "default" in option else "none"


def lines_of(name: str, option: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Return an option, and its sub-options below it, as list items."""
    text = " ".join(paragraphs(option.get("description", "")))
    choices = f" One of {', '.join(f'`{json.dumps(choice)}`' for choice in option['choices'])}." if "choices" in option else ""
    own = [f"{'  ' * depth}- `{name}` ({kind(option)}, default: {value(option)}): {text}{choices}".replace("default: required", "required")]
    for inner, nested in sorted(option.get("options", {}).items()):
        own += lines_of(inner, nested, depth + 1)
    return own


def page(role: Path) -> str:
    """Return the role's README."""
    entry = specification(role)
    options: dict[str, Any] = entry.get("options", {})
    variables = [line for name, option in sorted(options.items()) for line in lines_of(name, option)]
    parts = [
        f"# vfio.passthrough.{role.name}",
        str(entry.get("short_description", "")).rstrip(".") + ".",
        *paragraphs(entry.get("description", "")),
        "## Variables",
        "\n".join(variables) or "None.",
        "## Use",
        f"```yaml\n- hosts: workers\n  roles:\n    - role: vfio.passthrough.{role.name}\n```",
        f"How the roles fit together is said in [the architecture]({SITE}/docs/architecture.md).",
        "This page is made from `meta/argument_specs.yml` by `make docs`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Return every page that is made from the tree, by its path."""
    return {spec.parents[1] / "README.md": page(spec.parents[1]) for spec in sorted(root.glob("roles/*/meta/argument_specs.yml"))}


def main() -> int:
    """Write the pages that differ from what the tree says."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            say(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

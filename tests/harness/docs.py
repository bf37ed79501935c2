"""`make docs`: write the pages that are made from the tree - roles, modules, the picture of the chain.

The picture is drawn from docs/chain.json, what `hostdev explain --format json` said on a node; `docs --chain FILE` takes
another recording in its place, such as build/chain.json of a demo.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .chain_svg import draw
from .say import say

ROOT = Path(__file__).resolve().parents[2]
SITE = "https://github.com/vfio-passthrough/vfio.passthrough/blob/main"
RECORDING = "docs/chain.json"
MARKUP = re.compile(r"\b(?:RV|[OVCMIBEP])\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
# what a reader sets first, as the variables of a play
EXAMPLES = {
    "host": """
host_devices:
  - resource: nvidia.com/AD102_GEFORCE_RTX_4090
    select: {id: "10de:2684"}
host_reboot_ok: true
host_kubeconfig: ~/.kube/config
""",
    "runtime": """
runtime_manage_packages: true
""",
    "device_plugin": """
device_plugin_devices:
  - resource: nvidia.com/AD102_GEFORCE_RTX_4090
    select: {id: "10de:2684"}
""",
    "launcher": """
launcher_image: localhost/vfio-passthrough-launcher:1.0.0
launcher_archive: launcher.tar
launcher_ctr: [k3s, ctr, --namespace, k8s.io]
""",
    "kubevirt": """
kubevirt_devices:
  - resource: nvidia.com/AD102_GEFORCE_RTX_4090
    select: {id: "10de:2684"}
kubevirt_kubeconfig: ~/.kube/config
""",
    "verify": """
verify_wait: 120
""",
}
PLAY = """- name: Use role {role}
  hosts: workers
  gather_facts: false
  roles:
    - role: vfio.passthrough.{role}
      vars:
"""


def plain(text: Any) -> str:
    """Return a description (text or list of texts) as Markdown: Ansible's marks become code."""
    parts = [str(part).strip() for part in (text if isinstance(text, list) else [text]) if part]
    return "\n\n".join(MARKUP.sub(lambda found: f"`{found[1].split('#')[0].strip()}`", part) for part in parts)


def cell(text: str) -> str:
    """Return text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(one) for one in line)} |" for line in lines)


def kind(option: Mapping[str, Any]) -> str:
    """Return the type as a reader says it: list of str, int."""
    name = str(option.get("type", "str"))
    return f"list of {option['elements']}" if "elements" in option else name


def value(option: Mapping[str, Any]) -> str:
    """Return what holds when the option is not given."""
    if option.get("required"):
        return "required"
    return f"`{json.dumps(option['default'])}`" if "default" in option else "-"


def option_rows(options: Mapping[str, Any], before: str = "") -> Iterator[list[str]]:
    """Yield name, type, default, choices and description of every option, each sub-option after its own."""
    for name, option in sorted(options.items()):
        choices = ", ".join(f"`{choice}`" for choice in option.get("choices", []))
        yield [f"`{before}{name}`", kind(option), value(option), choices or "-", plain(option.get("description", ""))]
        deeper = f"{before}{name}[]." if option.get("type") == "list" else f"{before}{name}."
        yield from option_rows(option.get("options") or option.get("suboptions") or {}, deeper)


def options_of(options: Mapping[str, Any]) -> str:
    """Return the table of options."""
    return table(("Name", "Type", "Default", "Choices", "Meaning"), list(option_rows(options))) if options else "None."


def example(role: str) -> str:
    """Return a play that uses the role."""
    return f"```yaml\n{PLAY.format(role=role)}{textwrap.indent(EXAMPLES[role].lstrip(), ' ' * 8)}```"


def role_page(role: Path) -> str:
    """Return a role's page from its argument specification."""
    entry = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    parts = [
        f"# vfio.passthrough.{role.name}",
        str(entry["short_description"]).rstrip(".") + ".",
        plain(entry.get("description", "")),
        "## Variables",
        options_of(entry.get("options", {})),
        "## Example",
        example(role.name),
        f"How the roles fit together is said in [the architecture]({SITE}/docs/architecture.md).",
        "This page is made from `meta/argument_specs.yml` by `make docs`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def texts_of(module: Path) -> dict[str, Any]:
    """Return DOCUMENTATION, EXAMPLES (as text) and RETURN of a module, read without importing it."""
    found: dict[str, Any] = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant):
            found[node.targets[0].id] = node.value.value
    documentation = yaml.safe_load(found["DOCUMENTATION"])
    shared = [fragment_of(name, module.parents[1]) for name in documentation.get("extends_documentation_fragment", [])]
    options = {name: option for one in [*shared, documentation] for name, option in one.get("options", {}).items()}
    return {
        "documentation": {**documentation, "options": options},
        "examples": found.get("EXAMPLES", "").strip(),
        "return": yaml.safe_load(found.get("RETURN", "")) or {},
    }


def fragment_of(name: str, plugins: Path) -> dict[str, Any]:
    """Return the documentation of one of our fragments by its full name."""
    tree = ast.parse((plugins / f"doc_fragments/{name.rpartition('.')[2]}.py").read_text(encoding="utf-8"))
    [text] = [node.value.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
    found: dict[str, Any] = yaml.safe_load(str(text))
    return found


def module_section(texts: Mapping[str, Any]) -> str:
    """Return what the page of modules says about one."""
    told = texts["documentation"]
    returned = [[f"`{name}`", kind(one), plain(one.get("description", ""))] for name, one in texts["return"].items()]
    parts = [
        f"## {told['module']}",
        str(told["short_description"]).rstrip(".") + ".",
        plain(told.get("description", "")),
        options_of(told.get("options", {})),
        "Returns:\n\n" + table(("Name", "Type", "Meaning"), returned) if returned else "",
        f"```yaml\n{texts['examples']}\n```" if texts["examples"] else "",
    ]
    return "\n\n".join(part for part in parts if part)


def modules_page(root: Path) -> str:
    """Return the page of all modules."""
    every = [texts_of(module) for module in sorted((root / "plugins/modules").glob("*.py"))]
    rows = [
        [f"[{one['documentation']['module']}](#{one['documentation']['module']})", one["documentation"]["short_description"]]
        for one in every
    ]
    parts = ["# Modules", table(("Module", "What it does"), rows), *[module_section(one) for one in every]]
    return "\n\n".join(parts) + "\n\nThis page is made from the modules' own documentation by `make docs`.\n"


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Return every page that is made from the tree, by its path."""
    made: dict[Path, str] = {}
    for spec in sorted(root.glob("roles/*/meta/argument_specs.yml")):
        role = spec.parents[1]
        made[role / "README.md"] = made[root / f"docs/roles/{role.name}.md"] = role_page(role)
    made[root / "docs/modules.md"] = modules_page(root)
    made[root / "docs/chain.svg"] = draw(json.loads((root / RECORDING).read_text(encoding="utf-8")))
    return made


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the pages that are absent or differ from what the tree says."""
    return {path: text for path, text in pages(root).items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def main(arguments: Sequence[str]) -> int:
    """Write the pages that differ from what the tree says."""
    parser = argparse.ArgumentParser(prog="make docs", description="Write the pages that are made from the tree.")
    parser.add_argument("--chain", type=Path, help=f"a recording that replaces {RECORDING}")
    chain = parser.parse_args(arguments).chain
    if chain:
        (ROOT / RECORDING).write_text(json.dumps(json.loads(chain.read_text(encoding="utf-8")), indent=1) + "\n", encoding="utf-8")
    for path, text in stale().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

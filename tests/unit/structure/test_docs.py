"""The pages that are made from the tree are those that the tree would make now."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.vfio.passthrough.tests.harness import docs


def test_pages_are_current() -> None:
    stale = [str(path) for path, text in docs.pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    assert not stale, f"run `make docs`: {stale}"


def test_page_shows_options_with_their_sub_options(tmp_path: Path) -> None:
    (tmp_path / "roles/host/meta").mkdir(parents=True)
    (tmp_path / "roles/host/meta/argument_specs.yml").write_text(
        """
argument_specs:
  main:
    short_description: Prepare the host
    description: [First., Second.]
    options:
      host_devices:
        type: list
        elements: dict
        required: true
        description: What to bind.
        options:
          select: {type: dict, description: Which., default: {}}
      host_mode: {type: str, choices: [a, b], default: a, description: How.}
""",
        encoding="utf-8",
    )
    [text] = docs.pages(tmp_path).values()
    assert "Prepare the host.\n\nFirst.\n\nSecond." in text
    assert "- `host_devices` (list of dict, required): What to bind.\n  - `select` (dict, default: `{}`): Which." in text
    assert '- `host_mode` (str, default: `"a"`): How. One of `"a"`, `"b"`.' in text

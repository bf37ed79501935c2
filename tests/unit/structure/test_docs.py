"""The pages that are made from the tree are those that the tree would make now."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import yaml
from ansible_collections.vfio.passthrough.tests.harness import docs
from ansible_collections.vfio.passthrough.tests.harness.chain_svg import draw


def test_pages_are_current() -> None:
    assert not [str(path) for path in docs.stale()], "run `make docs`"


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
          select: {type: dict, description: Which of V(a|b)., default: {}}
      host_mode: {type: str, choices: [a, b], default: a, description: How.}
""",
        encoding="utf-8",
    )
    text = docs.role_page(tmp_path / "roles/host")
    assert "Prepare the host.\n\nFirst.\n\nSecond." in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `host_devices` | list of dict | required | - | What to bind. |",
        "| `host_devices[].select` | dict | `{}` | - | Which of `a\\|b`. |",
        '| `host_mode` | str | `"a"` | `a`, `b` | How. |',
    ]
    assert "role: vfio.passthrough.host" in text


def test_every_role_has_an_example_of_its_own_variables() -> None:
    roles = {path.parents[1].name for path in docs.ROOT.glob("roles/*/meta/argument_specs.yml")}
    assert set(docs.EXAMPLES) == roles
    for role, text in docs.EXAMPLES.items():
        [play] = yaml.safe_load(docs.example(role).strip("`").removeprefix("yaml"))
        [used] = play["roles"]
        assert used["vars"] == yaml.safe_load(text)
        assert set(used["vars"]) <= set(yaml.safe_load((docs.ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8")))


def test_every_module_is_on_the_page() -> None:
    text = docs.pages()[docs.ROOT / "docs/modules.md"]
    for module in docs.ROOT.glob("plugins/modules/*.py"):
        assert f"\n## {module.stem}\n" in text


def test_marks_become_code() -> None:
    assert docs.plain(["Like V(auto), see M(ansible.builtin.reboot).", "C([k3s, ctr]) too"]) == (
        "Like `auto`, see `ansible.builtin.reboot`.\n\n`[k3s, ctr]` too"
    )


def test_picture_tells_state_evidence_and_mend() -> None:
    kernel = {"place": "kernel", "state": "broken", "evidence": "held by <nvidia>", "hint": "run site.yml"}
    waiting = [{"place": place, "state": "waiting", "evidence": "waits for the kernel", "hint": ""} for place in ("Kubernetes", "guest")]
    picture = draw({"chains": [{"resource": "example.com/gpu", "device": "0000:01:00.0", "links": [kernel, *waiting]}]})
    told = [node.text for node in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert told[:5] == ["0000:01:00.0  example.com/gpu", "host kernel", "broken", "held by <nvidia>", "-> run site.yml"]
    assert told.count("waiting") == 2


def test_the_page_of_variables_names_what_the_playbooks_take() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (docs.ROOT / "playbooks").glob("*.yml"))
    own = re.findall(r"^\s+(hostdev_\w+):", text, re.MULTILINE) + re.findall(r"register: (hostdev_\w+)", text)
    page = (docs.ROOT / "docs/playbooks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bhostdev_\w+", text)) - set(own) == set(re.findall(r"`(hostdev_\w+)`", page))

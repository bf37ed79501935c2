"""What the fragment documents is what the modules take."""

from __future__ import annotations

import yaml
from ansible_collections.vfio.passthrough.plugins.doc_fragments.declaration import ModuleDocFragment
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.declaration import SPEC
from ansible_collections.vfio.passthrough.plugins.modules import pci_binding, pci_info


def test_the_fragment_documents_the_spec() -> None:
    options = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    assert {name: {key: one[key] for key in one if key != "description"} for name, one in options.items()} == SPEC
    assert all(one["description"] for one in options.values())


def test_modules_of_the_declaration_take_it_whole() -> None:
    for module in (pci_binding, pci_info):
        assert {name: module.SPEC[name] for name in SPEC} == SPEC

"""The runtime's wings import in one direction; modules carry nothing that they must not."""

from __future__ import annotations

from typing import Callable

import pytest
from ansible_collections.vfio.passthrough.tests.unit.structure import imports
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import RUNTIME, UTILS, Source, sources

Check = Callable[[Source], "list[str]"]
CHECKS: list[Check] = [imports.direction_faults, imports.third_party_faults, imports.io_faults, imports.base_faults]

BAD = [
    (imports.direction_faults, "device/x.py", "from ..root import Root"),
    (imports.direction_faults, "guest/x.py", "def f():\n    from ..kernel import pci\n"),
    (imports.direction_faults, "guest/x.py", "from ..kernel.pci import read"),
    (imports.direction_faults, "kernel/x.py", "from .. import kube"),
    (imports.direction_faults, "explain/x.py", "from ..cli import main"),
    (imports.direction_faults, "kube/x.py", "from ansible.module_utils.basic import AnsibleModule"),
    (imports.direction_faults, "kube/x.py", "from ...glue.errors import fail"),
    (imports.direction_faults, "kube/x.py", "import ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root"),
    (imports.third_party_faults, "kernel/x.py", "try:\n    import grpc\nexcept ImportError:\n    grpc = None\n"),
    (imports.third_party_faults, "kube/x.py", "import grpc"),
    (imports.third_party_faults, "guest/x.py", "try:\n    import requests\nexcept ImportError:\n    requests = None\n"),
    (imports.third_party_faults, "guest/x.py", "try:\n    import lxml\nexcept ValueError:\n    lxml = None\n"),
    (imports.io_faults, "device/x.py", "import subprocess"),
    (imports.io_faults, "vmi/x.py", "open('name')"),
    (imports.base_faults, "kube/x.py", "try:\n    import grpc\nexcept ImportError:\n    grpc = None\nclass S(grpc.Handler):\n    pass\n"),
]
# what a module never carries: what serves gRPC, and the program itself
NEVER_CARRIED_LIBRARIES = {"grpc", "google"}
# modules that run on the controller and talk to the API server
MAY_CARRY_API_CLIENT = {"kubevirt_permitted_devices", "node_daemonset", "node_pods_info", "virtual_machine"}
MOST_FILES = 60
MOST_BYTES = 350 * 1024


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_runtime_obeys(check: Check) -> None:
    assert sources(RUNTIME), "the runtime is not where it is looked for"
    faults = [fault for source in sources(RUNTIME) for fault in check(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(("check", "path", "text"), BAD)
def test_check_sees_a_bad_example(check: Check, path: str, text: str) -> None:
    assert check(Source(f"{RUNTIME}/{path}", text))


def test_every_wing_has_a_layer() -> None:
    assert {source.wing for source in sources(RUNTIME)} <= set(imports.LAYERS)


def carried_faults(module: Source, known: dict[str, Source]) -> list[str]:
    """Return what is wrong with the files that travel with a module."""
    names = imports.closure(module, known)
    libraries = {item.first for name in names for item in imports.imports(known[name])}
    size = sum(len(known[name].text.encode()) for name in names)
    faults = [f"{module.path}: carries {name}" for name in sorted(names) if name.startswith(f"{imports.RUNTIME}.cli")]
    faults += [f"{module.path}: carries code that imports {name}" for name in sorted(libraries & NEVER_CARRIED_LIBRARIES)]
    name = module.module.rpartition(".")[2]
    if "kubernetes" in libraries and name not in MAY_CARRY_API_CLIENT:
        faults.append(f"{module.path}: carries the API client")
    if len(names) > MOST_FILES or size > MOST_BYTES:
        faults.append(f"{module.path}: carries {len(names)} files, {size} bytes")
    return faults


def modules_known() -> dict[str, Source]:
    """Return the module_utils by name."""
    return {source.module: source for source in sources(UTILS)}


def test_modules_carry_little() -> None:
    known = modules_known()
    faults = [fault for module in sources("plugins/modules") for fault in carried_faults(module, known)]
    assert not faults, "\n".join(faults)


def test_carried_files_are_followed_to_the_end() -> None:
    head = "plugins/module_utils/hostdev"
    known = {
        source.module: source
        for source in (
            Source(f"{head}/kube/__init__.py", ""),
            Source(f"{head}/kube/a.py", "from .b import x"),
            Source(f"{head}/kube/b.py", "try:\n    import grpc\nexcept ImportError:\n    grpc = None\n"),
            Source(f"{head}/cli.py", ""),
        )
    }
    module = Source(
        "plugins/modules/pci_info.py",
        "def main():\n    from ..module_utils.hostdev.kube import a\n    from ..module_utils.hostdev import cli\n",
    )
    faults = carried_faults(module, known)
    assert faults == [
        "plugins/modules/pci_info.py: carries plugins.module_utils.hostdev.cli",
        "plugins/modules/pci_info.py: carries code that imports grpc",
    ]


def test_only_glue_imports_ansible() -> None:
    others = [source for source in sources(UTILS) if "/glue/" not in source.path]
    faults = [f"{source.path}: {item.name}" for source in others for item in imports.imports(source) if item.first == "ansible"]
    assert faults == []

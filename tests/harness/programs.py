"""The Go programs of tests/go, built once each and kept in the cache."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import golang
from .cache import cached

GO = Path(__file__).resolve().parents[1] / "go"
SMALL = ("-trimpath", "-ldflags", "-s -w")
# the constant in KubeVirt's device manager that says where the functions are
_BASE = r"^\s*pciBasePath\s*=.*$"


def client() -> Path:
    """Return the client that drives a device plugin as the kubelet does; `client kubelet|allocate|start`."""
    return _program("client", GO, "20 to 40 s")


def minimal() -> Path:
    """Return the minimal Go device plugin, the peer of the benchmarks."""
    return _program("minimal", GO, "20 to 40 s")


def oracle() -> Path:
    """Return KubeVirt's launcher as an oracle: {"vmi", "env"} on its standard input, the host devices' XML on its output.

    Through libvirt_dlopen the libvirt module needs neither headers nor library, of which nothing here is called.
    """
    module = GO / "oracle"
    arguments = ["-tags", "libvirt_dlopen", *SMALL]

    def build(out: Path) -> None:
        compile_go(module, [*arguments, "-o", str(out / "oracle"), "."], cgo=True)

    return cached("go-oracle", [*inputs(module), *arguments], build, "1 min") / "oracle"


def manager() -> Path:
    """Return KubeVirt's discovery of PCI devices as a program, the peer of the benchmark.

    The function is not exported, so a file that exports it is laid over its package; Go lays files only over a vendored package.
    """
    module = GO / "manager"
    exported = module / "testdata/export.go"

    def build(out: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="vendor-", dir=out.parent) as name:
            _build_manager(Path(name), module, exported, out / "manager")

    return cached("go-manager", [*inputs(module), exported, _BASE, *SMALL], build, "2 to 4 min") / "manager"


def _build_manager(draft: Path, module: Path, exported: Path, out: Path) -> None:
    for file in inputs(module):
        shutil.copy(file, draft)
    subprocess.run([str(golang.go()), "mod", "vendor"], cwd=draft, env=golang.environment(), check=True)
    package = draft / "vendor/kubevirt.io/kubevirt/pkg/virt-handler/device-manager"
    text, removed = re.subn(_BASE, "", (package / "pci_device.go").read_text(encoding="utf-8"), flags=re.MULTILINE)
    if removed != 1:
        raise RuntimeError(f"KubeVirt's device manager has {removed} constants like {_BASE}, not one")
    (draft / "edited").write_text(text, encoding="utf-8")
    laid = {package / "pci_device.go": draft / "edited", package / "export.go": exported}
    (draft / "overlay").write_text(json.dumps({"Replace": {str(place): str(by) for place, by in laid.items()}}), encoding="ascii")
    compile_go(draft, ["-mod=vendor", "-overlay", "overlay", *SMALL, "-o", str(out), "."])


def inputs(module: Path, package: str = "") -> list[Path]:
    """Return what a program of a module is made from: the module's requirements and sums, and the package's Go files."""
    return [module / "go.mod", module / "go.sum", *sorted((module / package).glob("*.go"))]


def _program(name: str, module: Path, usual: str) -> Path:
    def build(out: Path) -> None:
        compile_go(module, [*SMALL, "-o", str(out / name), f"./{name}"])

    return cached(f"go-{name}", [*inputs(module, name), *SMALL], build, usual) / name


def compile_go(folder: Path, arguments: Sequence[str], *, cgo: bool = False) -> None:
    """Run `go build` in a folder; the sums in go.sum decide what is built, not the user's Go settings."""
    subprocess.run([str(golang.go()), "build", *arguments], cwd=folder, env=golang.environment(cgo=cgo), check=True)

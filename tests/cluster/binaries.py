"""The programs of a cluster, built once from Go modules: Kubernetes and containerd."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ..harness import golang
from ..harness.cache import cached

HERE = Path(__file__).resolve().parent
KUBERNETES = HERE
CONTAINERD = HERE / "containerd"
VERSION = "k8s.io/component-base/version"


def kubernetes() -> Path:
    """Return the folder with kubelet, kube-apiserver, kube-scheduler, kube-controller-manager and kubectl, built when missing."""
    return _built("kubernetes", KUBERNETES, "4 to 5 min on two cores")


def containerd() -> Path:
    """Return the folder with containerd, containerd-shim-runc-v2 and ctr, built when missing.

    Debian's own (1.6, 1.7) answers no RuntimeConfig call, which kubelet 1.36 insists on.
    """
    return _built("containerd", CONTAINERD, "1 min")


def program(name: str) -> str:
    """Return the path of a program that Debian packages bring; sbin folders count although a user's PATH may lack them."""
    for folder in [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin", "/usr/lib/cni"]:
        path = Path(folder) / name
        if folder and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(f"{name} is not installed; the packages of {HERE / 'packages.txt'} bring it")


def _built(name: str, module: Path, usual: str) -> Path:
    inputs: list[str | bytes | Path] = [module / "go.mod", module / "go.sum"]
    return cached(name, inputs, lambda out: _build(module, out), usual)


def _build(module: Path, out: Path) -> None:
    text = (module / "go.mod").read_text(encoding="utf-8")
    command = [str(golang.go()), "build", "-trimpath", "-ldflags", _link_flags(text), "-o", f"{out}/", *_tools(text)]
    subprocess.run(command, cwd=module, env=golang.environment(), check=True)


def _tools(go_mod: str) -> list[str]:
    block = re.search(r"^tool \((.*?)^\)", go_mod, re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError("go.mod has no tool block")
    return block.group(1).split()


def _link_flags(go_mod: str) -> str:
    """Strip, and set what `make` sets in Kubernetes' own tree: without it every program says v0.0.0."""
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)", go_mod)
    if found is None:
        return "-s -w"
    major, minor, patch = found.groups()
    values = {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {VERSION}.{key}={value}" for key, value in values.items())])

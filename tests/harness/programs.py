"""The Go programs of tests/go, built once each and kept in the cache."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import golang
from .cache import Input, cached

GO = Path(__file__).resolve().parents[1] / "go"
SMALL = ("-trimpath", "-ldflags", "-s -w")


def client() -> Path:
    """Return the client that drives a device plugin as the kubelet does; `client kubelet|allocate|start`."""
    return _program("client", GO, "20 to 40 s")


def minimal() -> Path:
    """Return the minimal Go device plugin, the peer of the benchmarks."""
    return _program("minimal", GO, "20 to 40 s")


def sources(folder: Path) -> list[Input]:
    """Return the Go files of one folder, by name."""
    return [*sorted(folder.glob("*.go"))]


def _program(name: str, module: Path, usual: str) -> Path:
    inputs: list[Input] = [module / "go.mod", module / "go.sum", *sources(module / name), *SMALL]

    def build(out: Path) -> None:
        compile_go(module, [*SMALL, "-o", str(out / name), f"./{name}"])

    return cached(f"go-{name}", inputs, build, usual) / name


def compile_go(folder: Path, arguments: Sequence[str], *, cgo: bool = False) -> None:
    """Run `go build` in a folder; the sums in go.sum decide what is built, not the user's Go settings."""
    subprocess.run([str(golang.go()), "build", *arguments], cwd=folder, env=golang.environment(cgo=cgo), check=True)

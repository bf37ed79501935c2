"""Print, as a JSON list, where the fake libvirt (argument 1: its file) differs from the real one; nothing else may."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import libvirt  # the real one: this file's folder holds no other

OWN = {"Script"}


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fake_libvirt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def differences(fake: ModuleType) -> Iterator[str]:
    for name, value in vars(fake).items():
        foreign = inspect.ismodule(value) or getattr(value, "__module__", fake.__name__) not in (fake.__name__, None)
        if name.startswith("_") or name in OWN or foreign or name == "annotations":
            continue
        if not hasattr(libvirt, name):
            yield f"the real one has no {name}"
        else:
            yield from unlike(name, value, getattr(libvirt, name))


def unlike(name: str, value: Any, real: Any) -> Iterator[str]:
    if isinstance(value, int) and value != real:
        yield f"{name} is {value}, really {real}"
    if inspect.isfunction(value) and parameters(value) != parameters(real):
        yield f"{name}{parameters(value)}, really {parameters(real)}"
    if inspect.isclass(value) and not issubclass(value, Exception):
        for method, body in vars(value).items():
            if inspect.isfunction(body) and not method.startswith("_"):
                yield from unlike(f"{name}.{method}", body, getattr(real, method, None))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(list(differences(load(sys.argv[1])))))

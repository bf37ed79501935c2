"""Count the modules that a run of ansible-playbook executes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

CALLBACKS = Path(__file__).parent / "callbacks"
ROLES = ("host", "runtime", "device_plugin", "launcher")


@dataclass(frozen=True)
class Execution:
    """One module that ran: role ("" outside roles), task, module, transport ("local" on the controller)."""

    role: str
    task: str
    module: str
    transport: str


def ours_on_the_worker(executions: list[Execution]) -> list[Execution]:
    """Return what the roles that prepare a node executed there; verify only looks, and what is delegated runs elsewhere."""
    roles = {f"{prefix}{role}" for role in ROLES for prefix in ("", "vfio.passthrough.")}
    return [one for one in executions if one.transport != "local" and one.role in roles]


class Counter:
    """The executions so far, in the order in which they began."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def all(self) -> list[Execution]:
        """Return what was executed."""
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        return [Execution(**json.loads(line)) for line in text.splitlines()]


@contextmanager
def counting(folder: Path) -> Iterator[Counter]:
    """Count what every ansible-playbook started within executes, by its environment."""
    counter = Counter(folder / "executions.jsonl")
    settings = {
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "count_executions",
        "BENCH_EXECUTIONS": str(counter.file),
    }
    with mock.patch.dict(os.environ, settings):
        yield counter

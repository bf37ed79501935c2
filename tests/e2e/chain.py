"""Record what `hostdev explain` says on the worker, for the picture of the chain (`make docs`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..harness.work import BUILD
from .line import Line

RECORDING = BUILD / "chain.json"


def record(line: Line) -> Path:
    """Write explain's JSON to build/chain.json and return that; `python -m ...tests.harness.docs --chain` draws from it."""
    command = f"/usr/local/sbin/hostdev explain --format json --launcher-image {line.image} --ctr '/opt/bin/ctr --namespace k8s.io'"
    told: dict[str, Any] = json.loads(line.worker.ssh(command))
    RECORDING.parent.mkdir(parents=True, exist_ok=True)
    RECORDING.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return RECORDING

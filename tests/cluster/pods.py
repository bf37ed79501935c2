"""Pods of the tests: their manifests, and waiting for what becomes of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .controlplane import ControlPlane
from .images import BUSYBOX


def pod(
    name: str,
    command: Sequence[str] = (),
    *,
    image: str = BUSYBOX,
    resources: Mapping[str, str] | None = None,
    node: str = "",
    user: int | None = None,
    namespace: str = "default",
) -> dict[str, Any]:
    """Return a pod of one container `main`; `resources` are both its limits and its requests."""
    container: dict[str, Any] = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    if command:
        container["command"] = list(command)
    if resources:
        container["resources"] = {"limits": dict(resources), "requests": dict(resources)}
    if user is not None:
        container["securityContext"] = {"runAsUser": user, "runAsGroup": user, "capabilities": {"drop": ["ALL"]}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def wait_for_phase(plane: ControlPlane, name: str, *phases: str, namespace: str = "default", seconds: float = 60.0) -> dict[str, Any]:
    """Return the pod once it is in one of the phases; else an error that holds its status and events."""
    limit = time.monotonic() + seconds
    while True:
        text = plane.kubectl("get", "pod", name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text else {}
        phase = found.get("status", {}).get("phase")
        if phase in phases:
            return found
        if time.monotonic() > limit:
            events = plane.kubectl("get", "events", "-n", namespace, "--field-selector", f"involvedObject.name={name}", check=False)
            raise TimeoutError(f"pod {name} is {phase}, not {' or '.join(phases)}, after {seconds:.0f} s: {found.get('status')}\n{events}")
        time.sleep(0.1)

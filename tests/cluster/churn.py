"""Pods that come and go on a real kubelet while something else happens, and what became of them."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, final

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.names import variable
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.plugin_process import USER, ledger, wait_until
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod

SPACE, LABEL = "default", "churn"
PAUSE = 0.1
GIVEN_UP = 0.05  # of the looks at a pod that runs, those at which it is deleted


@dataclass(frozen=True)
class Ended:
    """A pod that came to its end: why, if it failed; what it had in its variable; and when it ran."""

    name: str
    phase: str
    reason: str
    message: str
    value: str
    started: datetime | None
    finished: datetime | None


@final
class Churn:
    """Context manager: a thread that keeps some pods with one unit each, more than there are units; each runs for a moment.

    Some are deleted while they run. ended: the others. doubles: units that two pods were seen to hold at a time. given: pods that
    were seen to hold a unit, each with it.
    """

    def __init__(self, plane: ControlPlane, node: NativeNode, resource: str, width: int = 3, seed: int = 1) -> None:
        self.ended: list[Ended] = []
        self.doubles: list[str] = []
        self.given: set[tuple[str, str]] = set()
        self._plane, self._node, self._resource, self._width = plane, node, resource, width
        self._chance = random.Random(seed)
        self._made = 0
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()
        self._plane.kubectl("delete", "pod", "-l", LABEL, "--wait=true", "--grace-period=1")
        if self._error is not None and value is None:
            raise self._error

    def wait_given(self, former: int) -> None:
        """Wait until more than so many pods were given a unit."""
        wait_until(f"pod {former + 1} with a unit", lambda: len(self.given) > former or self._error)
        assert self._error is None, self._error

    @property
    def succeeded(self) -> list[Ended]:
        return [one for one in self.ended if one.phase == "Succeeded"]

    @property
    def failed(self) -> list[Ended]:
        return [one for one in self.ended if one.phase == "Failed"]

    @property
    def overlaps(self) -> list[tuple[Ended, Ended]]:
        """Return the pairs of pods that had one value at a time, by their own words and the kubelet's clock."""
        by_value: defaultdict[str, list[tuple[datetime, datetime, Ended]]] = defaultdict(list)
        for one in self.succeeded:
            assert one.started and one.finished
            by_value[one.value].append((one.started, one.finished, one))
        return [pair for runs in by_value.values() for pair in _overlapping(sorted(runs, key=lambda run: run[:2]))]

    def _run(self) -> None:
        try:
            from kubernetes import client

            core: Any = client.CoreV1Api(self._plane.client())
            while not self._ending.wait(PAUSE):
                self._turn(core)
        except BaseException as error:
            self._error = error

    def _turn(self, core: Any) -> None:
        twice = self._holders() & self._holders()
        self.given.update((owner, unit) for unit, owners in twice for owner in owners)
        self.doubles += [f"{unit}: {' '.join(owners)}" for unit, owners in twice if len(owners) > 1]
        pods = [one for one in core.list_namespaced_pod(SPACE, label_selector=LABEL).items if not one.metadata.deletion_timestamp]
        left = [one for one in pods if self._goes(one)]
        for one in left:
            core.delete_namespaced_pod(one.metadata.name, SPACE)
        for dummy in range(self._width - len(pods) + len(left)):
            core.create_namespaced_pod(SPACE, self._pod())

    def _holders(self) -> set[tuple[str, tuple[str, ...]]]:
        """Return each held unit with who holds it. One look alone may meet a unit between its former holder and the next."""
        owners: defaultdict[str, list[str]] = defaultdict(list)
        for one in ledger(self._node).holders(self._resource):
            owners[one.id].append(one.owner)
        return {(unit, tuple(names)) for unit, names in owners.items()}

    def _goes(self, one: Any) -> bool:
        status, name = one.status, one.metadata.name
        if status.phase == "Running":
            return self._chance.random() < GIVEN_UP
        if status.phase not in {"Succeeded", "Failed"}:
            return False
        states = [state.state.terminated for state in status.container_statuses or () if state.state.terminated]
        started, finished = (states[0].started_at, states[0].finished_at) if states else (None, None)
        value = self._node.pod_log(SPACE, name, "main").strip()
        self.ended.append(Ended(name, status.phase, status.reason or "", status.message or "", value, started, finished))
        return True

    def _pod(self) -> dict[str, Any]:
        self._made += 1
        name = variable("PCI_RESOURCE", self._resource)
        script = f"echo ${name}; sleep {self._chance.uniform(0, 0.5):.2f}"
        made = pod(f"churn-{self._made}", ["sh", "-c", script], resources={self._resource: "1"}, node=self._node.name, user=USER)
        made["metadata"]["labels"] = {LABEL: ""}
        return made


def _overlapping(runs: list[tuple[datetime, datetime, Ended]]) -> Iterator[tuple[Ended, Ended]]:
    # times are whole seconds: one that begins in the second in which another ended came after it
    for (_started, finished, one), (started, _finished, other) in zip(runs, runs[1:]):
        if started < finished:
            yield one, other

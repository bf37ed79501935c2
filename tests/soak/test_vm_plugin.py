"""The device plugin's service on the worker through HOSTDEV_SOAK rounds (default 20) of everything that devices do."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Sequence

import pytest
from ansible_collections.vfio.passthrough.tests.harness.work import BUILD
from ansible_collections.vfio.passthrough.tests.soak.test_repetition import COMPLAINTS, REPETITIONS
from ansible_collections.vfio.passthrough.tests.vm import plugging
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker
from ansible_collections.vfio.passthrough.tests.vm.plugging import PCI, bind, group
from ansible_collections.vfio.passthrough.tests.vm.plugin_stand import Stand
from ansible_collections.vfio.passthrough.tests.vm.test_plugin_service import (
    AUDIOS,
    DONGLE,
    GIB,
    GPU,
    GPUS,
    NIC_PORT,
    SERIAL,
    UUIDS,
    VF,
    _bus,
    _cards,
    _functions,
    _stand,
    _worker,
    probe,
    unbind,
)

__all__ = ["_bus", "_cards", "_functions", "_stand", "_worker"]

PARENT = f"{PCI}/0000:{NIC_PORT:02x}:00.0"
MIB = 1 << 20
NOTE = BUILD / "results/vm-plugin.json"
WARM = 2  # rounds after which the service has met everything once


class Life:
    """One step of a round for each thing that can happen to a device; each leaves the worker as it was."""

    def __init__(self, worker: Worker, stand: Stand, cards: Sequence[str], functions: Sequence[str], bus: str) -> None:
        self.worker, self.stand, self.cards, self.functions, self.bus = worker, stand, list(cards), list(functions), bus
        self.steps: dict[str, Callable[[], None]] = {
            "unbound": self.unbound,
            "blocked": self.blocked,
            "removed": self.removed,
            "parent": self.parent,
            "mediated": self.mediated,
            "pulled": self.pulled,
            "granted": self.granted,
            "kubelet": self.kubelet,
        }

    def unbound(self) -> None:
        for one, other in ((0, 1), (1, 0)):
            self.stand.cause([unbind(GPUS[one])], GPU, self.cards[other])
            self.stand.cause([probe(GPUS[one])], GPU, *self.cards)

    def blocked(self) -> None:
        audio, override = AUDIOS[1], f"{PCI}/{AUDIOS[1]}/driver_override"
        self.stand.cause([unbind(audio), (override, "snd_hda_intel"), probe(audio)], GPU, self.cards[0])
        self.stand.cause([unbind(audio), (override, "vfio-pci"), probe(audio)], GPU, *self.cards)

    def removed(self) -> None:
        self.stand.cause([(f"{PCI}/{GPUS[0]}/remove", "1")], GPU, self.cards[1])
        self.worker.ssh("echo 1 >/sys/bus/pci/rescan; udevadm settle")
        bind(self.worker, GPUS[:1])
        self.stand.wait(GPU, *self.cards)

    def parent(self) -> None:
        self.stand.cause([(f"{PARENT}/sriov_numvfs", "0")], VF)
        plugging.make_functions(self.worker, PARENT.rpartition("/")[2], len(self.functions))
        bind(self.worker, self.functions)
        self.stand.wait(VF, *(group(self.worker, one) for one in self.functions))

    def mediated(self) -> None:
        made = plugging.make_mdev(self.worker, "mtty", "2", UUIDS[0])
        self.stand.wait(SERIAL, made)
        self.stand.cause([(f"/sys/bus/mdev/devices/{UUIDS[0]}/remove", "1")], SERIAL)

    def pulled(self) -> None:
        name = plugging.plug_stick(self.worker, self.bus, 1, "D1")
        self.stand.wait(DONGLE, f"{name}:D1")
        plugging.pull_stick(self.worker, "D1")
        self.stand.wait(DONGLE)

    def granted(self) -> None:
        (answer,) = self.stand.allocate(GPU, [random.choice(self.cards)])
        got = self.stand.peer(answer, memlock=GIB)
        assert (got["fault"], got["limits"]) == ("", [GIB, GIB])

    def kubelet(self) -> None:
        self.stand.restart_kubelet()
        self.stand.wait(GPU, *self.cards)

    def round(self) -> None:
        for step in random.sample(list(self.steps.values()), len(self.steps)):
            step()


def usage(worker: Worker, pid: int) -> tuple[int, int, int]:
    """Return how many files and threads a process has, and its memory (PSS) in bytes."""
    said = worker.ssh(f"ls /proc/{pid}/fd | wc -l; ls /proc/{pid}/task | wc -l; sed -n 's/^Pss: *//p' /proc/{pid}/smaps_rollup").split()
    return int(said[0]), int(said[1]), int(said[2]) * 1024


def note(reactions: Sequence[float], used: Sequence[tuple[int, int, int]]) -> None:
    """Keep what was measured: seconds from the kernel's event to the kubelet's list, and files, threads and bytes after each round."""
    NOTE.parent.mkdir(parents=True, exist_ok=True)
    told = {"median": statistics.median(reactions), "worst": max(reactions), "number": len(reactions)}
    NOTE.write_text(json.dumps({"reactions": told, "used": used}, indent=1) + "\n", encoding="ascii")


@pytest.mark.timeout(4 * 3600)
def test_whatever_devices_do_the_service_follows_and_stays_as_it_is(
    worker: Worker, stand: Stand, cards: list[str], functions: list[str], bus: str
) -> None:
    life = Life(worker, stand, cards, functions, bus)
    pid = stand.service_pid()
    complaints = worker.ssh(COMPLAINTS)
    for _warm in range(WARM):
        life.round()
    stand.reactions.clear()
    used = [usage(worker, pid)]
    for _round in range(REPETITIONS):
        life.round()
        used.append(usage(worker, pid))
        note(stand.reactions, used)
    assert stand.service_pid() == pid
    files, threads, _bytes = (max(values) for values in zip(*used[: REPETITIONS // 2 + 1]))
    assert used[-1][0] <= files + 1
    assert used[-1][1] <= threads + 2
    # what grows without end grows in the second half as much as in the first, in which pools and caches fill
    assert used[-1][2] <= used[REPETITIONS // 2][2] + MIB
    assert worker.ssh(COMPLAINTS) == complaints

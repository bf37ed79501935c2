"""From a change of a device until the kubelet has it: events of the kernel, inotify, our look, the list at the Go client.

There is no peer: KubeVirt's plugins find a device that was bound at their next scan, a minute or two later, and one that came
back not at all. The machine is a testbed of umockdev: its device events reach our process as the kernel's do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

# by their full names: the testbed's process loads this file by its path
from ansible_collections.vfio.passthrough.tests.bench import peers
from ansible_collections.vfio.passthrough.tests.bench.figures import Figure
from ansible_collections.vfio.passthrough.tests.bench.launcher import runtime_of_the_image
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost
from ansible_collections.vfio.passthrough.tests.fakes.process import GoKubelet, PluginProcess
from ansible_collections.vfio.passthrough.tests.fakes.udev import UdevHost, in_testbed
from ansible_collections.vfio.passthrough.tests.guest.guest import PYTHON
from ansible_collections.vfio.passthrough.tests.harness import programs

DEVICES = 64
TURNS = 50
MOST_MS = 100.0
Change = Callable[[UdevHost, FakeHost, str, str], None]


def unbound(bed: UdevHost, host: FakeHost, address: str, group: str) -> None:
    """Take a function from vfio-pci, in the kernel's order (drivers/base/dd.c): node, driver, event."""
    (host.base / "dev/vfio" / group).unlink()
    driver_changed("", "unbind", bed, host, address, group)


def bound(bed: UdevHost, host: FakeHost, address: str, group: str) -> None:
    """Give it back: driver, node, event."""
    host.bind(host.folder_of(address), "vfio-pci")
    host.node(group)
    bed.event(host.folder_of(address), "bind")


def driver_changed(driver: str, action: str, bed: UdevHost, host: FakeHost, address: str, _group: str) -> None:
    """Bind a function to a driver while its group's node stays, as it does in a group of several."""
    host.bind(host.folder_of(address), driver)
    bed.event(host.folder_of(address), action)


def timed(bed: UdevHost, changes: tuple[Change, Change]) -> list[float]:
    """Make a device of many unhealthy and healthy again, turn by turn, and return the milliseconds until each was listed."""
    host = peers.make_host(bed.host.base, DEVICES)
    folder = host.base / "plugins"
    folder.mkdir()
    taken = []
    runtime = runtime_of_the_image(host.base / "lib")
    # the library set this in our own environment, past what Python knows of it
    env = {"UMOCKDEV_DIR": str(host.base)}
    with GoKubelet(folder) as kubelet, PluginProcess(host, folder, PYTHON, runtime, env):
        kubelet.listed(peers.RESOURCE, lambda devices: len(devices) == DEVICES)
        for turn in range(TURNS):
            number = turn * 7 % DEVICES
            for change, health in zip(changes, ("Unhealthy", "Healthy")):
                # after the quarters of a second in which this change's further events are merged, at any moment of what comes then
                time.sleep(0.6 + turn * 37 % 40 / 100)
                since, begin = len(kubelet.events), time.monotonic_ns()
                change(bed, host, host.made[number], str(number + 10))
                told = kubelet.listed(peers.RESOURCE, partial(has, str(number + 10), health), since)
                taken.append((told["ns"] - begin) / 1e6)
    return taken


def has(unit: str, health: str, devices: list[dict[str, Any]]) -> bool:
    """Return whether a list says so of a unit."""
    return any(one["ID"] == unit and one["health"] == health for one in devices)


def with_nodes(bed: UdevHost) -> list[float]:
    """Return the times of functions that are unbound and bound."""
    return timed(bed, (unbound, bound))


def by_event_alone(bed: UdevHost) -> list[float]:
    """Return the times of functions that another driver takes and gives back."""
    return timed(bed, (partial(driver_changed, "nvidia", "bind"), partial(driver_changed, "vfio-pci", "bind")))


def measure() -> Iterator[Figure]:
    """Yield median and 99th percentile of both ways to learn of a change."""
    # built here: in the testbed's process nothing but the result may be printed
    programs.client()
    for scene, name in ((with_nodes, "device unbound or bound"), (by_event_alone, "driver changed, node stays")):
        taken = in_testbed(scene)
        for share, word in ((0.5, "median"), (0.99, "p99")):
            yield Figure(f"{name} -> list, {word}", "ms", peers.percentile(taken, share), aim=MOST_MS)

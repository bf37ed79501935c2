"""Device events of the kernel: what is bound, unbound, added or removed wakes the plugin, which then looks again."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import pyudev
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kinds import find, find_skipped
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.waking import Waker
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.watch import DeviceWatch
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes.udev import UdevHost, in_testbed

GPU = "0000:01:00.0"
DECLARATION = parse_declaration([{"resource": "example.com/gpu", "select": {"id": "10de:2684"}}])


def woken(waker: Waker, seconds: float = 20.0) -> bool:
    found = bool(select.select([waker._read], [], [], seconds)[0])
    waker.wait(0, 0)
    return found


def health(root: Root) -> list[str]:
    return [*(one.health for one in find(root, DECLARATION).offers), *(one.reason for one in find_skipped(root, DECLARATION))]


def a_card_comes_and_goes(bed: UdevHost) -> Any:
    waker = Waker()
    DeviceWatch(waker)
    host = bed.host
    seen = []

    def told(folder: Path, action: str) -> None:
        bed.event(folder, action)
        seen.append([action, woken(waker), *health(host.root)])

    folder = host.function(GPU, driver="nvidia", group="7")
    host.node("7")
    told(folder, "add")
    host.bind(folder, "")
    told(folder, "unbind")
    host.bind(folder, "vfio-pci")
    told(folder, "bind")
    (host.base / f"sys/bus/pci/devices/{GPU}").unlink()
    told(folder, "remove")
    return seen


def test_a_card_that_comes_and_goes_wakes_and_is_seen_anew() -> None:
    assert in_testbed(a_card_comes_and_goes) == [
        ["add", True, "not-bound"],
        ["unbind", True, "not-bound"],
        ["bind", True, "Healthy"],
        ["remove", True],
    ]


def other_devices(bed: UdevHost) -> Any:
    waker = Waker()
    DeviceWatch(waker)
    host = bed.host
    card = host.function(GPU, driver="vfio-pci", group="7")
    for name, folder in (("net", card / "net/eth0"), ("vfio-dev", card / "vfio-dev/vfio0")):
        folder.mkdir(parents=True)
        (folder / "uevent").write_text("", encoding="ascii")
        path = "/" + str(folder.relative_to(host.base))
        (host.base / f"sys/class/{name}").mkdir(parents=True, exist_ok=True)
        host.link(f"{path}/subsystem", f"/sys/class/{name}")
    bed.event(card / "net/eth0", "add")
    quiet = woken(waker, 1.0)
    bed.event(card / "vfio-dev/vfio0", "add")
    return [quiet, woken(waker)]


def test_vfio_devices_wake_and_others_do_not() -> None:
    assert in_testbed(other_devices) == [False, True]


def as_udev_sees_it(bed: UdevHost) -> Any:
    bed.host.function(GPU, driver="nvidia", group="7")
    bed.host.function("0000:01:00.1", "10de:22ba", "040300", group="7")
    return [[one.sys_name, one.driver, one.properties["PCI_ID"]] for one in pyudev.Context().list_devices(subsystem="pci")]


def as_the_readers_see_it(bed: UdevHost) -> Any:
    bed.host.function(GPU, driver="vfio-pci", group="7")
    bed.host.node("7")
    # the machine's own root: what stands behind it here is the testbed
    return health(Root())


def test_the_made_host_is_one_to_udev_and_to_the_readers() -> None:
    assert in_testbed(as_udev_sees_it) == [[GPU, "nvidia", "10DE:2684"], ["0000:01:00.1", None, "10DE:22BA"]]
    assert in_testbed(as_the_readers_see_it) == ["Healthy"]

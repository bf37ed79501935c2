"""The host as the launcher sees it."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.address import Address
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.host_cpus import read_host
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost


def test_what_the_kernel_does_not_tell_is_left_out(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    for name, node in (("0000:01:00.0", "1\n"), ("0000:02:00.0", "-1\n"), ("0000:03:00.0", "")):
        host.function(name, files={"numa_node": node})
    host.write("/sys/bus/pci/devices/odd/numa_node", "0\n")
    for node, cpus in (("node0", "0-1\n"), ("node1", "2,4-5\n"), ("node2", "\n"), ("nodes", "9\n")):
        host.write(f"/sys/devices/system/node/{node}/cpulist", cpus)
    seen = read_host(host.root)
    assert seen.numa.nodes == {Address.parse("0000:01:00.0"): 1}
    assert seen.numa.cpus == {0: (0, 1), 1: (2, 4, 5)}
    assert seen.allowed == tuple(sorted(os.sched_getaffinity(0)))

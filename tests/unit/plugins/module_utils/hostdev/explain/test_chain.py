"""The chain as values, its table and its report."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.chain import Link, chain_of, report, table

BROKEN = chain_of(
    "a.com/gpu",
    "0000:01:00.0",
    [Link("kernel", "ok", "driver vfio-pci"), Link("Kubernetes", "broken", "no plugin", "start it"), Link("guest", "ok", "free")],
)
WHOLE = chain_of("a.com/gpu", "0000:02:00.0", [Link("kernel", "ok", "a"), Link("Kubernetes", "ok", "b"), Link("guest", "ok", "c")])


def test_links_behind_the_first_broken_one_wait_for_it() -> None:
    assert [link.state for link in BROKEN.links] == ["ok", "broken", "waiting"]
    assert BROKEN.links[2].evidence == "waits for the Kubernetes"
    assert BROKEN.first_broken == Link("Kubernetes", "broken", "no plugin", "start it")
    assert (BROKEN.arrived, WHOLE.arrived) == (False, True)


def test_the_report_names_each_device_that_does_not_arrive_with_its_mend() -> None:
    told = report([BROKEN, WHOLE])
    assert told["arrived"] == 1
    assert told["broken"] == ["0000:01:00.0 (a.com/gpu): Kubernetes broken: no plugin -> start it"]
    assert [chain["arrived"] for chain in told["chains"]] == [False, True]


def test_the_table_has_a_row_per_place_and_the_mend_below_the_broken_link() -> None:
    lines = table([BROKEN, WHOLE])
    assert lines[0].split() == ["DEVICE", "RESOURCE", "PLACE", "STATE", "EVIDENCE"]
    assert lines[1].split() == ["0000:01:00.0", "a.com/gpu", "kernel", "ok", "driver", "vfio-pci"]
    assert lines[3].strip() == "-> start it"
    assert len(lines) == 1 + 3 + 1 + 3
    assert all(line == line.rstrip() for line in lines)

"""The chains of a node: for each thing that may be broken, the place and the mend."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.chain import Chain
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.node import PLUGIN_STATE, NodeFacts, chains, read_facts
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import Verdict
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.podresources import Kubelet
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GPU = "nvidia.com/GPU"
DECLARATION = parse_declaration([{"resource": GPU, "select": {"id": "10de:2684"}}])
OK = Verdict("IOMMU_OK", ("dmar0",), "nothing to do")
PLUGIN = {
    "resources": [{"resource": GPU, "registered": True}],
    "units": [{"resource": GPU, "group": "16", "health": "Healthy", "reason": ""}],
}
KUBELET = Kubelet({GPU: frozenset({"16"})})


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    made.function("0000:01:00.0", driver="vfio-pci", group="16")
    made.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="16")
    return made


def facts(host: FakeHost, declaration: Declaration = DECLARATION, **more: Any) -> NodeFacts:
    found = replace(read_facts(host.root, declaration), verdict=OK, plugin=PLUGIN, kubelet=KUBELET)
    return replace(found, **more)


def only(found: list[Chain]) -> Chain:
    (chain,) = found
    return chain


def test_a_device_that_arrived_has_evidence_in_all_three_places(host: FakeHost) -> None:
    chain = only(chains(DECLARATION, facts(host, image_name="launcher:1", image=True)))
    assert chain.arrived
    assert [link.evidence for link in chain.links] == [
        "driver vfio-pci, IOMMU group 16, companions 0000:01:00.1",
        f"{GPU} unit 16 of 1 allocatable",
        "free for a guest; launcher image launcher:1 is on the node",
    ]


def test_a_held_device_names_its_pod(host: FakeHost) -> None:
    held = Kubelet(KUBELET.allocatable, {(GPU, "16"): "default/vm-a"})
    assert only(chains(DECLARATION, facts(host, kubelet=held))).links[2].evidence == "held by pod default/vm-a"


@pytest.mark.parametrize(
    ("more", "place", "evidence", "hint"),
    [
        ({"plugin": None}, "Kubernetes", "does not run", "systemctl status"),
        ({"plugin": {"resources": [], "units": []}}, "Kubernetes", "has not registered", "kubelet up"),
        (
            {"plugin": {**PLUGIN, "units": [{"resource": GPU, "group": "16", "health": "Unhealthy", "reason": "/dev/vfio/16 is gone"}]}},
            "Kubernetes",
            "/dev/vfio/16 is gone",
            "journalctl",
        ),
        ({"kubelet": None, "kubelet_fault": "no such socket"}, "Kubernetes", "no such socket", "kubelet up"),
        ({"kubelet": Kubelet()}, "Kubernetes", "does not list unit 16", "journalctl"),
        ({"image_name": "launcher:1", "image": False}, "guest", "launcher:1 is not on the node", "hostdev_launcher_archive"),
    ],
)
def test_each_broken_link_is_named_with_its_mend(host: FakeHost, more: dict[str, Any], place: str, evidence: str, hint: str) -> None:
    link = only(chains(DECLARATION, facts(host, **more))).first_broken
    assert link is not None
    assert (link.place, link.state) == (place, "broken")
    assert evidence in link.evidence
    assert hint in link.hint


def test_a_companion_on_a_host_driver_breaks_the_kernels_link(host: FakeHost) -> None:
    host.bind(host.folder_of("0000:01:00.1"), "snd_hda_intel")
    link = only(chains(DECLARATION, facts(host))).first_broken
    assert link is not None
    assert (link.place, "0000:01:00.1" in link.evidence, "snd_hda_intel" in link.evidence) == ("kernel", True, True)


@pytest.mark.parametrize(
    ("code", "state"), [("IOMMU_OFF_BY_ARG", "pending"), ("IOMMU_OFF_PENDING_REBOOT", "pending"), ("IOMMU_FIRMWARE", "broken")]
)
def test_an_inactive_iommu_is_a_reboot_away_or_broken(tmp_path: Path, code: str, state: str) -> None:
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", driver="nvidia")
    link = only(chains(DECLARATION, facts(host, verdict=Verdict(code, ("no groups",), "the mend")))).first_broken
    assert link is not None
    assert (link.place, link.state, link.hint) == ("kernel", state, "the mend")
    assert code in link.evidence


def test_an_entry_that_means_no_device_has_a_chain_of_its_own(host: FakeHost) -> None:
    declaration = parse_declaration(
        [{"resource": GPU, "select": {"id": "10de:2684"}}, {"resource": "a.com/x", "select": {"id": "10de:ffff"}}]
    )
    missing = chains(declaration, facts(host, declaration))[1]
    assert (missing.resource, missing.device) == ("a.com/x", "none")
    assert missing.first_broken is not None
    assert "hostdev_devices[1]: no PCI function of this node has id 10de:ffff" in missing.first_broken.evidence


def test_facts_of_a_node_without_plugin_and_kubelet(host: FakeHost) -> None:
    found = read_facts(host.root, DECLARATION)
    assert (found.plugin, found.kubelet, found.image) == (None, None, None)
    assert found.kubelet_fault
    host.write(PLUGIN_STATE, json.dumps(PLUGIN))
    assert read_facts(host.root, DECLARATION).plugin == PLUGIN
    host.write(PLUGIN_STATE, "half a li")
    assert read_facts(host.root, DECLARATION).plugin is None


@pytest.mark.parametrize(("answer", "there"), [(Done(0, "launcher:1\n", ""), True), (Done(0, "", ""), False), (Done(1, "", "no"), False)])
def test_the_image_is_looked_for_by_its_name(host: FakeHost, answer: Done, there: bool) -> None:
    asked: list[list[str]] = []

    def run(command: Any, timeout: float) -> Done:
        asked.append(list(command))
        return answer if command[0] == "ctr" else Done(1, "", "")

    assert read_facts(Root(base=host.base, runner=run), DECLARATION, "launcher:1", ["ctr"]).image is there
    assert ["ctr", "images", "ls", "--quiet", "name==launcher:1"] in asked

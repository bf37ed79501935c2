"""The chains of a node: for each thing that may be broken, the place and the mend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.declaration import Declaration, parse_declaration
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.holding import Holding
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.chain import Chain, Link, report
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.facts import NodeFacts, Where, read_facts
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.node import chains
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.explain.state import LISTS, PLUGIN_LOCK, PLUGIN_STATE
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.boot_files import RULES
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootargs import ensure
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootloader import loader_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.bootplan import Wish
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.iommu import Verdict, read_state
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.safety import HUNG
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.ledger import Ledger
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.process import alone
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Done, Root
from ansible_collections.vfio.passthrough.tests.fakes.grub import Machine
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

GPU = "nvidia.com/GPU"
DECLARATION = parse_declaration([{"resource": GPU, "select": {"id": "10de:2684"}}])
OK = Verdict("IOMMU_OK", ("dmar0",), "nothing to do")
UNIT = {"kind": "pci", "resource": GPU, "id": "16", "name": "0000:01:00.0", "values": ["0000:01:00.0"], "health": "Healthy", "reason": ""}
PLUGIN: dict[str, Any] = {**dict.fromkeys(LISTS, ()), "resources": [{"resource": GPU, "registered": True}], "units": [UNIT]}
LEDGER = Ledger({GPU: frozenset({"16"})})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path)
    made.function("0000:01:00.0", driver="vfio-pci", group="16")
    made.function("0000:01:00.1", "10de:22ba", "040300", driver="vfio-pci", group="16")
    made.node("16")
    # as a service that runs: where one left a state file, it is believed
    with alone(made.root.at(PLUGIN_LOCK)):
        yield made


def facts(host: FakeHost, declaration: Declaration = DECLARATION, **more: Any) -> NodeFacts:
    found = replace(read_facts(host.root, declaration), verdict=OK, plugin=PLUGIN, ledger=LEDGER)
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
    held = Ledger(LEDGER.allocatable, (Holding(GPU, "16", "default", "vm-a", "compute"),))
    assert only(chains(DECLARATION, facts(host, ledger=held))).links[2].evidence == "held by pod default/vm-a"


@pytest.mark.parametrize(
    ("more", "place", "evidence", "hint"),
    [
        ({"plugin": None}, "Kubernetes", "does not run", "systemctl status"),
        ({"plugin": {**PLUGIN, "resources": []}}, "Kubernetes", "has not registered", "kubelet up"),
        ({"plugin": {**PLUGIN, "resources": [{"resource": GPU, "cause": "not today"}]}}, "Kubernetes", "kubelet: not today", "kubelet up"),
        (
            {"plugin": {**PLUGIN, "units": [{**UNIT, "health": "Unhealthy", "reason": "/dev/vfio/16 is gone"}]}},
            "Kubernetes",
            "/dev/vfio/16 is gone",
            "journalctl",
        ),
        ({"plugin": {**PLUGIN, "units": []}}, "Kubernetes", "does not know unit 16 yet", "within seconds"),
        ({"ledger": None, "ledger_fault": "no such socket"}, "Kubernetes", "no such socket", "kubelet up"),
        ({"ledger": Ledger()}, "Kubernetes", "does not list unit 16", "journalctl"),
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
    ("code", "state", "mend"),
    [
        ("IOMMU_OFF_BY_ARG", "broken", "the advice"),
        ("IOMMU_OFF_PENDING_REBOOT", "pending reboot", "reboot the node, or set hostdev_reboot_ok: true and run site.yml again"),
        ("IOMMU_FIRMWARE", "broken", "the advice"),
    ],
)
def test_an_inactive_iommu_is_a_reboot_away_or_broken(tmp_path: Path, code: str, state: str, mend: str) -> None:
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", driver="nvidia")
    link = only(chains(DECLARATION, facts(host, verdict=Verdict(code, ("no groups",), "the advice")))).first_broken
    assert link is not None
    assert (link.place, link.state, link.hint) == ("kernel", state, mend)
    assert code in link.evidence


def test_an_entry_that_means_no_device_has_a_chain_of_its_own(host: FakeHost) -> None:
    declaration = parse_declaration(
        [{"resource": GPU, "select": {"id": "10de:2684"}}, {"resource": "a.com/x", "select": {"id": "10de:ffff"}}]
    )
    missing = chains(declaration, facts(host, declaration))[1]
    assert (missing.resource, missing.device) == ("a.com/x", "none")
    assert missing.first_broken is not None
    assert "hostdev_devices[1]: no PCI function of this node has id 10de:ffff" in missing.first_broken.evidence


def test_where_unlike_nodes_share_a_declaration_such_an_entry_is_shown_and_no_fault(host: FakeHost) -> None:
    declaration = parse_declaration(
        [{"resource": GPU, "select": {"id": "10de:2684"}}, {"resource": "a.com/x", "select": {"id": "10de:ffff"}}]
    )
    told = report(chains(declaration, facts(host, declaration), missing_ok=True))
    assert (told["arrived"], told["pending"], told["broken"]) == (1, [], [])
    assert told["table"][-1].split()[:4] == ["none", "a.com/x", "kernel", "absent"]
    assert told["table"][-1].endswith(
        "no PCI function of this node has id 10de:ffff; nearest ids present are 10de:22ba (0000:01:00.1), 10de:2684 (0000:01:00.0)"
    )
    assert [link["state"] for link in told["chains"][1]["links"]] == ["absent"]


def test_two_entries_of_one_resource_are_two_questions(host: FakeHost) -> None:
    entries = [{"resource": GPU, "select": {"id": "10de:2684"}}, {"resource": GPU, "select": {"id": "10de:ffff"}}]
    declaration = parse_declaration(entries)
    assert [chain.device for chain in chains(declaration, facts(host, declaration))] == ["0000:01:00.0", "none"]


@pytest.fixture(name="machine")
def grub_machine(tmp_path: Path) -> Machine:
    host = FakeHost(tmp_path)
    host.function("0000:01:00.0", driver="nvidia", group="16")
    return Machine(tmp_path)


def first(machine: Machine) -> Link:
    link = only(chains(DECLARATION, read_facts(machine.root, DECLARATION))).first_broken
    assert link is not None
    return link


def test_words_that_are_out_of_the_next_boot_wait_for_it(machine: Machine) -> None:
    assert first(machine).state == "broken"
    assert "remove iommu=off and intel_iommu=off" in first(machine).hint
    ensure(machine.root, loader_of(machine.root), read_state(machine.root), Wish())
    link = first(machine)
    assert link.state == "pending reboot"
    for words in ("IOMMU_OFF_PENDING_REBOOT", "the next boot has no intel_iommu=off", "the next boot has intel_iommu=on"):
        assert words in link.evidence
    assert "remove" not in link.hint
    assert report(chains(DECLARATION, read_facts(machine.root, DECLARATION)))["broken"] == []


def iommu_on(machine: Machine) -> None:
    """Start the machine with an active IOMMU, and a rule that binds its device at boot."""
    ensure(machine.root, loader_of(machine.root), read_state(machine.root), Wish())
    machine.boot()
    machine.put("/sys/class/iommu/dmar0/uevent", "")
    machine.put("/proc/sys/kernel/random/boot_id", "boot-1\n")
    machine.put(RULES, 'ACTION=="add", KERNEL=="0000:01:00.0", ATTR{driver_override}="vfio-pci"\n')


def test_a_users_words_and_a_binding_that_waits_for_them(machine: Machine) -> None:
    iommu_on(machine)
    assert first(machine).state == "broken"
    ensure(machine.root, loader_of(machine.root), read_state(machine.root), Wish(("hugepages=8",)))
    link = first(machine)
    assert (link.state, "the next boot has hugepages=8; the next boot binds it" in link.evidence) == ("pending reboot", True)


def test_an_unbind_that_hung_waits_for_the_next_boot_alone(machine: Machine) -> None:
    iommu_on(machine)
    machine.put(f"{HUNG}/0000:01:00.0", "boot-1")
    link = first(machine)
    assert (link.state, "its unbind did not return in this boot" in link.evidence) == ("pending reboot", True)
    machine.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    assert first(machine).state == "broken"


def test_a_companion_whose_unbind_hung_waits_too(machine: Machine, tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.bind(host.folder_of("0000:01:00.0"), "vfio-pci")
    host.function("0000:01:00.1", "10de:22ba", "040300", driver="snd_hda_intel", group="16")
    iommu_on(machine)
    machine.put(f"{HUNG}/0000:01:00.1", "boot-1")
    assert (first(machine).state, "snd_hda_intel" in first(machine).evidence) == ("pending reboot", True)


def test_facts_of_a_node_without_plugin_and_kubelet(host: FakeHost) -> None:
    found = read_facts(host.root, DECLARATION)
    assert (found.plugin, found.ledger, found.image) == (None, None, None)
    assert found.ledger_fault.endswith("no such socket")
    host.write(PLUGIN_STATE, json.dumps(PLUGIN))
    told = read_facts(host.root, DECLARATION).plugin
    assert told is not None
    assert (told["units"][0]["id"], told["units"][0]["since"], told["renumbered"]) == ("16", "", [])
    host.write(PLUGIN_STATE, "half a li")
    assert read_facts(host.root, DECLARATION).plugin is None


@pytest.mark.parametrize(("answer", "there"), [(Done(0, "launcher:1\n", ""), True), (Done(0, "", ""), False), (Done(1, "", "no"), False)])
def test_the_image_is_looked_for_by_its_name(host: FakeHost, answer: Done, there: bool) -> None:
    asked: list[list[str]] = []

    def run(command: Any, timeout: float) -> Done:
        asked.append(list(command))
        return answer if command[0] == "ctr" else Done(1, "", "")

    assert read_facts(Root(base=host.base, runner=run), DECLARATION, "launcher:1", Where(ctr=["ctr"])).image is there
    assert ["ctr", "images", "ls", "--quiet", "name==launcher:1"] in asked

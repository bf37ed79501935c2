"""The device plugin as a service on a real kernel: every kind of device offered, followed by events, and granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.vm import devices, plugging
from ansible_collections.vfio.passthrough.tests.vm.grant_peer import DEFAULT_LIMIT
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker, timed_worker
from ansible_collections.vfio.passthrough.tests.vm.plugging import PCI, bind, group
from ansible_collections.vfio.passthrough.tests.vm.plugin_stand import UID, KubeletFault, Stand, nodes, value

GPUS = ("0000:01:00.0", "0000:02:00.0")
AUDIOS = ("0000:01:00.1", "0000:02:00.1")
GPU, VF = "nvidia.com/AD102_GEFORCE_RTX_4090", "example.com/vf"
DECLARED: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2684"}},
    {"resource": VF, "select": {"id": "8086:10ca"}},
]
CONTROL = "/dev/vfio/vfio"
NIC_PORT = 5
GIB = 1 << 30


@pytest.fixture(name="worker", scope="module")
def _worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with timed_worker(tmp_path_factory.mktemp("plugin"), restore=plugging.every_kind()) as machine:
        yield machine


@pytest.fixture(name="functions", scope="module")
def _functions(worker: Worker) -> list[str]:
    """Return two virtual functions of a NIC, bound."""
    made = plugging.make_functions(worker, plugging.plug_nic(worker, NIC_PORT), 2)
    bind(worker, made)
    return made


@pytest.fixture(name="stand", scope="module")
def _stand(worker: Worker) -> Iterator[Stand]:
    bind(worker, (*GPUS, *AUDIOS))
    made = Stand(worker)
    made.start(*DECLARED)
    yield made
    made.stop()


@pytest.fixture(name="cards", scope="module")
def _cards(worker: Worker, stand: Stand) -> list[str]:
    """Return the groups of both GPUs, once they are offered."""
    found = [group(worker, one) for one in GPUS]
    stand.wait(GPU, *found)
    return found


def test_gpus_and_functions_are_offered_by_group_with_one_address_each(
    worker: Worker, stand: Stand, cards: list[str], functions: list[str]
) -> None:
    virtual = [group(worker, one) for one in functions]
    listed = stand.wait(VF, *virtual)
    # this machine has one memory node and no word about it
    assert [state["numa"] for state in listed.values()] == [[], []]
    for resource, variable, ids, addresses in (
        (GPU, "PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090", cards, GPUS),
        (VF, "PCI_RESOURCE_EXAMPLE_COM_VF", virtual, functions),
    ):
        for one, address in zip(ids, addresses):
            (answer,) = stand.allocate(resource, [one])
            assert value(answer, variable) == address
            assert nodes(answer) == [CONTROL, f"/dev/vfio/{one}"]
        (both,) = stand.allocate(resource, list(ids))
        assert value(both, variable) == ",".join(addresses)
        assert nodes(both) == [CONTROL, *(f"/dev/vfio/{one}" for one in ids)]


def test_no_node_per_device_where_the_kernel_makes_none(worker: Worker, stand: Stand, cards: list[str]) -> None:
    # the kernel promises it all the same
    assert worker.ssh(f"ls {PCI}/{GPUS[0]}/vfio-dev").startswith("vfio")
    assert worker.ssh("ls /dev/vfio/devices /dev/iommu 2>/dev/null || true") == ""
    (answer,) = stand.allocate(GPU, cards[:1])
    assert not [node for node in nodes(answer) if "devices" in node or "iommu" in node]


def unbind(address: str) -> tuple[str, str]:
    return f"{PCI}/{address}/driver/unbind", address


def probe(address: str) -> tuple[str, str]:
    return "/sys/bus/pci/drivers_probe", address


def test_an_unbound_function_is_withdrawn_and_bound_again_it_is_back(stand: Stand, cards: list[str]) -> None:
    stand.cause([unbind(GPUS[0])], GPU, cards[1])
    with pytest.raises(KubeletFault, match=cards[0]):
        stand.allocate(GPU, cards[:1])
    stand.cause([probe(GPUS[0])], GPU, *cards)


def test_a_function_goes_alone(stand: Stand, cards: list[str], worker: Worker, functions: list[str]) -> None:
    first, second = (group(worker, one) for one in functions)
    stand.cause([unbind(functions[1])], VF, first)
    assert stand.wait(GPU, *cards)
    stand.cause([probe(functions[1])], VF, first, second)


def test_a_member_on_a_driver_of_the_host_makes_its_group_unhealthy(stand: Stand, cards: list[str]) -> None:
    audio = AUDIOS[1]
    override = f"{PCI}/{audio}/driver_override"
    stand.cause([unbind(audio), (override, "snd_hda_intel"), probe(audio)], GPU, cards[0])
    assert stand.lists(GPU)[-1][cards[1]]["health"] == "Unhealthy"
    stand.wait_skipped(GPUS[1], f"{audio} snd_hda_intel")
    with pytest.raises(KubeletFault, match=f"{audio} snd_hda_intel"):
        stand.allocate(GPU, cards[1:])
    stand.cause([unbind(audio), (override, "vfio-pci"), probe(audio)], GPU, *cards)


def test_a_removed_function_goes_and_its_sibling_stays(stand: Stand, cards: list[str], worker: Worker) -> None:
    stand.cause([(f"{PCI}/{GPUS[0]}/remove", "1")], GPU, cards[1])
    assert list(stand.lists(GPU)[-1]) == cards[1:]
    worker.ssh("echo 1 >/sys/bus/pci/rescan; udevadm settle")
    # found again it is the vendor's driver's: nobody takes what comes up later
    stand.wait_skipped(GPUS[0], "nvidia")
    bind(worker, GPUS[:1])
    stand.wait(GPU, *cards)


def test_a_card_that_is_pulled_out_goes_and_plugged_in_it_waits_to_be_bound(stand: Stand, cards: list[str], worker: Worker) -> None:
    worker.unplug("gpu1")
    assert list(stand.wait(GPU, cards[0])) == cards[:1]
    worker.plug(devices.gpu(1))
    stand.wait_skipped(GPUS[1], "nvidia")
    bind(worker, (GPUS[1], AUDIOS[1]))
    stand.wait(GPU, cards[0], group(worker, GPUS[1]))


def test_a_container_locks_its_guests_memory_and_owns_its_node_alone(stand: Stand, cards: list[str], worker: Worker) -> None:
    (answer,) = stand.allocate(GPU, cards[:1])
    hosts = worker.ssh(f"stat -c '%u %g %a' /dev/vfio/{cards[0]} {CONTROL}")
    got = stand.peer(answer, memlock=3 * GIB)
    assert got["fault"] == ""
    assert got["limits"] == [3 * GIB, 3 * GIB]
    assert got["nodes"] == {f"/dev/vfio/{cards[0]}": [UID, UID, 0o600], CONTROL: [0, 0, 0o666]}
    assert sorted(got["opened"]) == sorted(got["nodes"])
    assert worker.ssh(f"stat -c '%u %g %a' /dev/vfio/{cards[0]} {CONTROL}") == hosts


def test_two_devices_justify_twice_the_memory_and_no_more(stand: Stand, cards: list[str], functions: list[str], worker: Worker) -> None:
    answers = [*stand.allocate(GPU, cards[:1]), *stand.allocate(VF, [group(worker, functions[0])])]
    memory = int(worker.ssh("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")) * 1024
    most = 2 * memory + GIB
    assert stand.peer(*answers, memlock=most)["limits"] == [most, most]
    refused = stand.peer(*answers, memlock=most + 1)
    assert "x 2 granted devices + 1 GiB" in refused["fault"]
    assert refused["limits"] == [DEFAULT_LIMIT, DEFAULT_LIMIT]
    assert refused["opened"] == []


def test_a_kubelet_that_comes_again_is_told_everything_again(stand: Stand, cards: list[str], functions: list[str], worker: Worker) -> None:
    before = len(stand.registered())
    stand.restart_kubelet()
    stand.wait(GPU, *cards)
    stand.wait(VF, *(group(worker, one) for one in functions))
    assert sorted(stand.registered()[before:]) == sorted([GPU, VF])


# last, since the whole of vfio is changed under the service
def test_nodes_per_device_are_handed_out_and_granted_where_they_exist(
    stand: Stand, cards: list[str], functions: list[str], worker: Worker
) -> None:
    plugging.use_iommufd(worker, [*GPUS, *AUDIOS, *functions])
    stand.wait(GPU, *cards)
    name = worker.ssh(f"ls {PCI}/{GPUS[0]}/vfio-dev").strip()
    (answer,) = stand.allocate(GPU, cards[:1])
    assert f"/dev/vfio/devices/{name}" in nodes(answer)
    got = stand.peer(answer)
    assert got["nodes"][f"/dev/vfio/devices/{name}"] == [UID, UID, 0o600]
    assert sorted(got["opened"]) == sorted(got["nodes"])

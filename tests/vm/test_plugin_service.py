"""The device plugin as a service on a real kernel: every kind of device offered, followed by events, and granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.tests.vm import devices, plugging
from ansible_collections.vfio.passthrough.tests.vm.grant_peer import DEFAULT_LIMIT
from ansible_collections.vfio.passthrough.tests.vm.links import wait_for
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker, timed_worker
from ansible_collections.vfio.passthrough.tests.vm.plugging import PCI, bind, group
from ansible_collections.vfio.passthrough.tests.vm.plugin_stand import UID, KubeletFault, Stand, nodes, value

GPUS = ("0000:01:00.0", "0000:02:00.0")
AUDIOS = ("0000:01:00.1", "0000:02:00.1")
GPU, VF = "nvidia.com/AD102_GEFORCE_RTX_4090", "example.com/vf"
IOMMUFD, TURNS = "devices.kubevirt.io/iommufd", ("iommufd0", "iommufd1")
SERIAL, SMALL, STICK, DONGLE, PAIR = (f"example.com/{name}" for name in ("serial", "small", "stick", "dongle", "pair"))
DECLARED: list[dict[str, Any]] = [
    {"resource": GPU, "select": {"id": "10de:2684"}},
    {"resource": VF, "select": {"id": "8086:10ca"}},
    # the name has spaces and the id has none: both are the kernel's own words
    {"resource": SERIAL, "select": {"mdev_type": "Dual port serial"}},
    {"resource": SMALL, "select": {"mdev_type": "mbochs-small"}},
    {"resource": IOMMUFD, "node": "/dev/iommu", "count": 2},
    {"resource": DONGLE, "select": {"usb": {"vendor": "46f4", "product": "0001", "serial": "D1"}}},
    {"resource": PAIR, "bundle": [{"usb": {"serial": "P1"}}, {"usb": {"serial": "P2"}}]},
    {"resource": STICK, "select": [{"usb": {"vendor": "46f4", "port": "2-4"}}, {"usb": {"port": "2-2"}}]},
]
UUIDS = tuple(f"c9f44f5e-d2f9-4e60-9d60-5f0f5e1d2c1{number}" for number in range(3))
VARIABLE = "PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090"
CONTROL = "/dev/vfio/vfio"
NIC_PORT, USB_PORT = 5, 6
GIB = 1 << 30


@pytest.fixture(name="worker", scope="module")
def _worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    # other tests do without systemd's filters of system calls, which cost seconds of a boot; here they are what is tried
    with timed_worker(tmp_path_factory.mktemp("plugin"), restore=plugging.every_kind(), direct_arguments="SYSTEMD_SECCOMP=1") as machine:
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


@pytest.fixture(name="cards")
def _cards(worker: Worker, stand: Stand) -> list[str]:
    """Return the groups of both GPUs, which are offered; whatever an earlier test left."""
    found = plugging.drivers(worker, (*GPUS, *AUDIOS))
    bind(worker, [one for one, driver in zip((*GPUS, *AUDIOS), found) if driver != "vfio-pci"])
    cards = [group(worker, one) for one in GPUS]
    stand.wait(GPU, *cards)
    return cards


def test_the_service_runs_in_its_sandbox(worker: Worker, stand: Stand) -> None:
    pid = stand.service_pid()
    assert worker.ssh(f"sed -n 's/^Seccomp:\\t//p; s/^NoNewPrivs:\\t//p' /proc/{pid}/status").split() == ["1", "2"]


def test_gpus_and_functions_are_offered_by_group_with_one_address_each(
    worker: Worker, stand: Stand, cards: list[str], functions: list[str]
) -> None:
    virtual = [group(worker, one) for one in functions]
    listed = stand.wait(VF, *virtual)
    # this machine has one memory node and no word about it
    assert [state["numa"] for state in listed.values()] == [[], []]
    for resource, variable, ids, addresses in (
        (GPU, VARIABLE, cards, GPUS),
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


# opens a device as QEMU does; numbers from include/uapi/linux/vfio.h
HOLDER = """
import fcntl, os, struct, sys, time
address, group = sys.argv[1:]
container, group = (os.open("/dev/vfio/" + name, os.O_RDWR) for name in ("vfio", group))
fcntl.ioctl(group, 0x3B68, struct.pack("i", container))
fcntl.ioctl(container, 0x3B66, 1)
device = fcntl.ioctl(group, 0x3B6A, address.encode() + b"\\0")
print(os.getpid(), flush=True)
time.sleep(3600)
"""


def hold(worker: Worker, address: str, number: str) -> int:
    """Open a function as a guest does, in a process that stays; return the process."""
    start = f"cat >/run/holder.py; python3 /run/holder.py {address} {number} </dev/null >/run/holder.pid 2>/run/holder.log &"
    worker.ssh(start, input=HOLDER)
    return int(worker.ssh("for i in $(seq 600); do test -s /run/holder.pid && break; sleep .1; done; cat /run/holder.pid /run/holder.log"))


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


def test_functions_that_their_parent_takes_away_are_withdrawn(stand: Stand, worker: Worker, functions: list[str]) -> None:
    made = [group(worker, one) for one in functions]
    parent = f"{PCI}/0000:{NIC_PORT:02x}:00.0"
    stand.wait(VF, *made)
    stand.cause([(f"{parent}/sriov_numvfs", "0")], VF)
    stand.wait_reason(functions[0], "left the bus")
    assert plugging.make_functions(worker, parent.rpartition("/")[2], len(functions)) == functions
    bind(worker, functions)
    stand.wait(VF, *(group(worker, one) for one in functions))


def test_a_member_on_a_driver_of_the_host_makes_its_group_unhealthy(stand: Stand, cards: list[str]) -> None:
    audio = AUDIOS[1]
    override = f"{PCI}/{audio}/driver_override"
    stand.cause([unbind(audio), (override, "snd_hda_intel"), probe(audio)], GPU, cards[0])
    stand.wait_reason(GPUS[1], f"{audio} snd_hda_intel")
    with pytest.raises(KubeletFault, match=f"{audio} snd_hda_intel"):
        stand.allocate(GPU, cards[1:])
    stand.cause([unbind(audio), (override, "vfio-pci"), probe(audio)], GPU, *cards)


def test_a_removed_function_is_withdrawn_and_its_sibling_stays(stand: Stand, cards: list[str], worker: Worker) -> None:
    stand.cause([(f"{PCI}/{GPUS[0]}/remove", "1")], GPU, cards[1])
    stand.wait_reason(GPUS[0], "left the bus")
    worker.ssh("echo 1 >/sys/bus/pci/rescan; udevadm settle")
    # found again it is the vendor's driver's: nobody takes what comes up later
    stand.wait_reason(GPUS[0], "nvidia")
    bind(worker, GPUS[:1])
    stand.wait(GPU, *cards)


def test_a_card_that_is_pulled_out_is_withdrawn_and_plugged_in_it_waits_to_be_bound(stand: Stand, cards: list[str], worker: Worker) -> None:
    worker.unplug("gpu1")
    stand.wait(GPU, cards[0])
    stand.wait_reason(GPUS[1], "left the bus")
    with pytest.raises(KubeletFault, match="left the bus"):
        stand.allocate(GPU, cards[1:])
    worker.plug(devices.gpu(1))
    stand.wait_reason(GPUS[1], "nvidia")
    bind(worker, (GPUS[1], AUDIOS[1]))
    stand.wait(GPU, cards[0], group(worker, GPUS[1]))


def test_a_card_that_is_pulled_out_of_a_guest_is_not_handed_out_again(stand: Stand, cards: list[str], worker: Worker) -> None:
    holder = hold(worker, GPUS[0], cards[0])
    worker.unplug("gpu0")
    # the kernel waits for the guest, and says nothing to anybody until it has let go
    wait_for("the driver to leave", lambda: plugging.drivers(worker, GPUS[:1]) == [""], worker.running)
    with pytest.raises(KubeletFault, match=GPUS[0]):
        stand.allocate(GPU, cards[:1])
    worker.ssh(f"kill {holder}")
    stand.wait(GPU, cards[1])
    stand.wait_reason(GPUS[0], "left the bus")
    worker.wait_gone(AUDIOS[0])
    worker.plug(devices.gpu(0))
    bind(worker, (GPUS[0], AUDIOS[0]))
    assert cards[1] in stand.wait(GPU, cards[1], group(worker, GPUS[0]))


def test_after_groups_were_numbered_anew_an_id_means_the_card_that_has_it_now(stand: Stand, cards: list[str], worker: Worker) -> None:
    for number in (0, 1):
        worker.unplug(f"gpu{number}")
    stand.wait(GPU)
    for number in (1, 0):
        worker.plug(devices.gpu(number))
        bind(worker, (GPUS[number], AUDIOS[number]))
    assert [group(worker, one) for one in GPUS] == cards[::-1]
    stand.wait(GPU, *cards)
    (answer,) = stand.allocate(GPU, cards)
    assert value(answer, VARIABLE) == ",".join(GPUS[::-1])


def test_mediated_devices_come_and_go(stand: Stand, worker: Worker) -> None:
    serials = [plugging.make_mdev(worker, "mtty", "2", uuid) for uuid in UUIDS[:2]]
    small = plugging.make_mdev(worker, "mbochs", "small", UUIDS[2])
    stand.wait(SERIAL, *serials)
    stand.wait(SMALL, small)
    (answer,) = stand.allocate(SERIAL, serials)
    assert value(answer, "MDEV_PCI_RESOURCE_EXAMPLE_COM_SERIAL") == ",".join(UUIDS[:2])
    assert nodes(answer) == [CONTROL, *(f"/dev/vfio/{one}" for one in serials)]
    stand.cause([(f"/sys/bus/mdev/devices/{UUIDS[0]}/remove", "1")], SERIAL, serials[1])
    with pytest.raises(KubeletFault, match=f"{UUIDS[0]} was removed"):
        stand.allocate(SERIAL, serials[:1])
    assert plugging.make_mdev(worker, "mtty", "2", UUIDS[0]) == serials[0]
    stand.wait(SERIAL, *serials)


def test_a_mediated_device_is_granted_as_any_other(stand: Stand, worker: Worker) -> None:
    group_of = f"basename $(readlink /sys/bus/mdev/devices/{UUIDS[2]}/iommu_group)"
    small = worker.ssh(group_of).strip()
    (answer,) = stand.allocate(SMALL, [small])
    got = stand.peer(answer, memlock=GIB)
    assert (got["fault"], got["limits"]) == ("", [GIB, GIB])
    assert got["nodes"][f"/dev/vfio/{small}"] == [UID, UID, 0o600]


@pytest.fixture(name="bus", scope="module")
def _bus(worker: Worker) -> str:
    """Return the bus of a USB controller."""
    return plugging.plug_usb_controller(worker, USB_PORT)


def numbers(worker: Worker, name: str) -> tuple[int, int]:
    bus, device = worker.ssh(f"cat {plugging.USB}/{name}/busnum {plugging.USB}/{name}/devnum").split()
    return int(bus), int(device)


def test_a_stick_keeps_its_id_through_its_replugging(stand: Stand, worker: Worker, bus: str) -> None:
    name = plugging.plug_stick(worker, bus, 1, "D1")
    stand.wait(DONGLE, f"{name}:D1")
    first = numbers(worker, name)
    (answer,) = stand.allocate(DONGLE, [f"{name}:D1"])
    assert value(answer, "USB_RESOURCE_EXAMPLE_COM_DONGLE") == "{}:{}".format(*first)
    assert nodes(answer) == ["/dev/bus/usb/{:03}/{:03}".format(*first)]
    plugging.pull_stick(worker, "D1")
    stand.wait(DONGLE)
    stand.wait_reason(name, "unplugged")
    with pytest.raises(KubeletFault, match="unplugged"):
        stand.allocate(DONGLE, [f"{name}:D1"])
    assert plugging.plug_stick(worker, bus, 1, "D1") == name
    stand.wait(DONGLE, f"{name}:D1")
    again = numbers(worker, name)
    assert again != first
    (answer,) = stand.allocate(DONGLE, [f"{name}:D1"])
    assert value(answer, "USB_RESOURCE_EXAMPLE_COM_DONGLE") == "{}:{}".format(*again)


def test_a_bundle_is_whole_or_not_there_and_its_sticks_serve_nothing_else(stand: Stand, worker: Worker, bus: str) -> None:
    second = plugging.plug_stick(worker, bus, 3, "P2")
    stand.wait_reason(second, "lacks usb serial P1")
    first = plugging.plug_stick(worker, bus, 2, "P1")
    pair = f"{first}:P1_{second}:P2"
    stand.wait(PAIR, pair)
    other = plugging.plug_stick(worker, bus, 4, "S1")
    stand.wait(STICK, f"{other}:S1")
    (answer,) = stand.allocate(PAIR, [pair])
    members = [numbers(worker, name) for name in (first, second)]
    assert value(answer, "USB_RESOURCE_EXAMPLE_COM_PAIR") == ",".join("{}:{}".format(*one) for one in members)
    assert nodes(answer) == ["/dev/bus/usb/{:03}/{:03}".format(*one) for one in members]
    got = stand.peer(answer)
    assert {one: got["nodes"][one][:2] for one in nodes(answer)} == {one: [UID, UID] for one in nodes(answer)}
    assert sorted(got["opened"]) == sorted(nodes(answer))
    plugging.pull_stick(worker, "P2")
    stand.wait(PAIR)
    # what is left of it is nobody else's: a guest may hold it
    assert list(stand.lists(STICK)[-1]) == [f"{other}:S1"]


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
    everything = {entry["resource"] for entry in DECLARED}
    wait_for("all registrations", lambda: set(stand.registered()[before:]) == everything, worker.running)


# last, since the whole of vfio is changed under the service
def test_nodes_per_device_are_handed_out_and_granted_where_they_exist(
    stand: Stand, cards: list[str], functions: list[str], worker: Worker
) -> None:
    for uuid in worker.ssh("ls /sys/bus/mdev/devices").split():
        plugging.remove_mdev(worker, uuid)
    plugging.use_iommufd(worker, [*GPUS, *AUDIOS, *functions])
    stand.wait(GPU, *cards)
    name = worker.ssh(f"ls {PCI}/{GPUS[0]}/vfio-dev").strip()
    (answer,) = stand.allocate(GPU, cards[:1])
    assert nodes(answer) == [CONTROL, f"/dev/vfio/{cards[0]}", f"/dev/vfio/devices/{name}", "/dev/iommu"]
    got = stand.peer(answer)
    assert {one: got["nodes"][one] for one in nodes(answer)[1:]} == {one: [UID, UID, 0o600] for one in nodes(answer)[1:]}
    assert sorted(got["opened"]) == sorted(got["nodes"])


def test_an_opened_iommu_is_handed_over_where_there_is_one(stand: Stand, worker: Worker) -> None:
    stand.wait(IOMMUFD, *TURNS)
    # the sandbox allows the node that there is when the service starts
    with pytest.raises(KubeletFault, match="restart the service"):
        stand.allocate(IOMMUFD, [TURNS[0]])
    stand.restart_service()
    stand.wait(IOMMUFD, *TURNS)
    number = [int(part, 16) for part in worker.ssh("stat -c '%t %T' /dev/iommu").split()]
    for turn in TURNS:
        (answer,) = stand.allocate(IOMMUFD, [turn])
        got = stand.peer(answer)
        assert (got["fault"], got["handed"]["device"], got["handed"]["by_process"]) == ("", number, True)
        assert got["handed"]["space"] > 0

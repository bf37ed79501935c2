"""The launcher's life, seen from outside: exit code, log, status file, termination message."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.tests.fakes.pod import Ended, Pod, vmi

SHUTDOWN, DESTROYED, CRASHED, FAILED = 0, 1, 2, 5


@pytest.fixture(name="pod")
def _pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "w")


def _fault(ended: Ended, *parts: str) -> None:
    assert ended.code == 1
    assert ended.message["state"] == "Failed"
    for part in parts:
        assert part in ended.message["message"]
        assert part in ended.log


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (SHUTDOWN, (0, "Succeeded", "GuestShutdown")),
        (DESTROYED, (3, "Failed", "GuestDestroyed")),
        (CRASHED, (2, "Failed", "GuestCrashed")),
        (FAILED, (2, "Failed", "EmulatorFailed")),
        (6, (2, "Failed", "Stopped")),
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_the_way_a_domain_stops_decides_the_exit_code(pod: Pod, detail: int, expected: tuple[int, str, str], early: bool) -> None:
    pod.start(script={"stops": detail, "early": early})
    ended = pod.end()
    assert (ended.code, ended.message["state"], ended.message["reason"]) == expected


def test_a_running_guest_is_ready_and_an_ended_one_is_not(pod: Pod) -> None:
    pod.start()
    pod.wait_ready()
    assert pod.state() == {"state": "Running", "domain": "default_probe", "devices": []}
    pod.send()
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (0, "GuestShutdown")
    assert not (pod.folder / "ready").exists()
    assert pod.state() == ended.message
    assert "SIGTERM: asking the guest to power off, within 20 s" in ended.log
    assert "own time" in ended.log


def test_a_guest_that_does_not_power_off_is_destroyed_when_its_grace_is_over(pod: Pod) -> None:
    pod.describe(vmi(grace=0))
    pod.start(script={"obeys": False})
    pod.wait_ready()
    pod.send(signal.SIGINT)
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (3, "GracePeriodExpired")


def test_asked_to_stop_during_a_long_start_it_does_not_wait_for_the_guest(pod: Pod) -> None:
    pod.start(script={"create_seconds": 3600})
    pod.wait(lambda: bool(pod.state()), "no status file")
    pod.wait((pod.folder / "run/libvirt/libvirt-sock").exists, "no libvirtd")
    pod.send()
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (3, "Stopped")


def test_what_libvirt_says_about_a_start_is_passed_on_with_what_to_do(pod: Pod) -> None:
    pod.start(script={"create_error": "internal error: vfio 0000:65:00.0: Could not open '/dev/vfio/18': Permission denied"})
    _fault(pod.end(), "cannot start the guest: default_probe: libvirt says:", "Permission denied", "grant socket")


def test_a_daemon_that_refuses_at_first_is_asked_again(pod: Pod) -> None:
    pod.start(script={"refused": 3, "stops": SHUTDOWN})
    assert pod.end().code == 0


def test_libvirtd_that_is_not_there(pod: Pod) -> None:
    pod.start(daemon=["no-such-libvirtd"])
    _fault(pod.end(), "cannot start libvirt: no-such-libvirtd", "not found on PATH", "libvirt-daemon-driver-qemu")


def test_an_error_that_nobody_foresaw_is_told_like_a_fault_and_its_origin_logged(pod: Pod) -> None:
    pod.start(daemon=[])
    ended = pod.end()
    _fault(ended, "an error of the launcher itself: tuple index out of range")
    assert ended.message["reason"] == "IndexError"
    assert "Traceback (most recent call last)" in ended.log
    assert "options.daemon[0]" in ended.log


def test_libvirtd_that_dies_at_once_is_quoted(pod: Pod) -> None:
    pod.start("die")
    _fault(pod.end(), "it ended with exit code 1", "Failed to find user record for uid '107'", "/etc/passwd")


def test_libvirtd_that_dies_under_a_guest_is_noticed_and_only_its_late_words_quoted(pod: Pod) -> None:
    pod.start("fail")
    pod.wait_ready()
    ended = pod.end()
    _fault(ended, "cannot keep libvirt running", "it ended with signal 6", "the last word")
    assert "a first complaint" not in ended.log
    assert not (pod.folder / "ready").exists()


def test_libvirtd_without_a_socket(pod: Pod) -> None:
    pod.start("mute", patience=2)
    _fault(pod.end(), "cannot connect to libvirt", "its socket did not appear within 2 s", "a first complaint about D-Bus")


def test_serial_output_goes_to_stdout_to_the_last_byte(pod: Pod) -> None:
    pod.start("orphan", script={"stops": SHUTDOWN, "after": 0.5})
    ended = pod.end()
    assert ended.out == "GUEST-BEGIN\nno line end but a last word\n"
    assert ended.code == 0


def test_nothing_is_started_when_the_description_is_wrong(pod: Pod) -> None:
    pod.describe({**vmi(), "kind": "VirtualMachine"})
    pod.start()
    _fault(pod.end(), "cannot read a VirtualMachine")
    assert not (pod.folder / "libvirtd.log").exists()


@pytest.mark.parametrize(("text", "cause"), [("{", "not JSON"), ("[]", "has to be a mapping")])
def test_a_description_that_is_none(pod: Pod, text: str, cause: str) -> None:
    pod.describe(text)
    pod.start()
    _fault(pod.end(), cause)


def test_a_description_that_is_absent(pod: Pod) -> None:
    pod.start(vmi="/nonexistent/vmi.json")
    _fault(pod.end(), "cannot read the VM's description: /nonexistent/vmi.json", "ConfigMap")


def test_a_device_without_its_variable_is_found_before_anything_is_started(pod: Pod) -> None:
    pod.describe(vmi(devices={"gpus": [{"name": "gpu1", "deviceName": "nvidia.com/AD102"}]}))
    pod.start()
    _fault(pod.end(), "spec.domain.devices.gpus[0]", "PCI_RESOURCE_NVIDIA_COM_AD102")
    assert not (pod.folder / "libvirtd.log").exists()


def test_a_device_without_a_grant_needs_a_limit_that_is_high_enough(pod: Pod) -> None:
    pod.describe(vmi(devices={"gpus": [{"name": "gpu1", "deviceName": "nvidia.com/AD102"}]}))
    pod.env["PCI_RESOURCE_NVIDIA_COM_AD102"] = "0000:65:00.0"
    pod.wrap = ("prlimit", "--memlock=8388608:8388608")
    pod.start()
    _fault(pod.end(), "cannot lock the guest's memory", str((64 << 20) + (1 << 30)), "the limit is 8388608 bytes", "no grant socket")


def test_the_limit_that_the_pod_tells_is_the_one_that_is_asked_for(pod: Pod) -> None:
    pod.describe(vmi(devices={"gpus": [{"name": "gpu1", "deviceName": "nvidia.com/AD102"}]}))
    pod.env["PCI_RESOURCE_NVIDIA_COM_AD102"] = "0000:65:00.0"
    pod.wrap = ("prlimit", "--memlock=8388608:8388608")
    pod.start(memory_lock=2430599344)
    _fault(pod.end(), "cannot lock the guest's memory", "2430599344", "the limit is 8388608 bytes")


def test_the_rests_of_a_former_start_are_gone(pod: Pod) -> None:
    (pod.folder / "ready").touch()
    (pod.folder / "run/libvirt/qemu").mkdir(parents=True)
    (pod.folder / "run/libvirt/qemu/default_probe.xml").touch()
    pod.start("die")
    pod.end()
    assert not (pod.folder / "ready").exists()
    assert not (pod.folder / "run/libvirt/qemu").exists()


def _with_network(pod: Pod) -> None:
    document = vmi(devices={"interfaces": [{"name": "blue", "sriov": {}}]})
    document["spec"]["networks"] = [{"name": "blue", "multus": {"networkName": "default/blue"}}]
    pod.describe(document)


def test_a_virtual_function_comes_from_the_pods_annotation(pod: Pod) -> None:
    _with_network(pod)
    info = pod.folder / "podinfo"
    info.mkdir()
    address = {"type": "pci", "pci": {"pci-address": "0000:65:0a.3"}}
    (info / "network-status").write_text(json.dumps([{"interface": "pod16477688c0e", "device-info": address}]), encoding="utf-8")
    pod.start(script={"stops": SHUTDOWN}, pod_info=str(info), memory_lock=0)
    ended = pod.end()
    assert (ended.code, ended.message["reason"]) == (0, "GuestShutdown")
    assert '<address domain="0x0000" bus="0x65" slot="0x0a" function="0x3"/>' in ended.log
    assert "running with sriov-blue = 0000:65:0a.3" in ended.log


def test_without_the_annotation_nothing_is_started(pod: Pod) -> None:
    _with_network(pod)
    pod.start(pod_info=str(pod.folder / "nowhere"))
    _fault(pod.end(), "cannot find the virtual functions of the guest's networks", "neither network-info nor network-status is there")


def _hand_over(place: Path, handles: list[int]) -> threading.Thread:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(place))
    listener.listen(1)

    def serve() -> None:
        line, _address = listener.accept()
        with line:
            socket.send_fds(line, [b"\0"], handles) if handles else line.sendall(b"\0")
            line.recv(1)
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_a_descriptor_of_the_iommu_goes_to_libvirt(pod: Pod) -> None:
    with open("/dev/null", "rb") as handle:
        served = _hand_over(pod.folder / "i.sock", [handle.fileno()])
        pod.start(script={"stops": SHUTDOWN}, iommufd=str(pod.folder / "i.sock"))
        ended = pod.end()
    served.join(10)
    assert not served.is_alive()
    assert (ended.code, ended.message["reason"]) == (0, "GuestShutdown")
    assert '<iommufd enabled="yes" fdgroup="iommu"/>' in ended.log


def test_without_a_descriptor_where_one_is_promised_nothing_is_started(pod: Pod) -> None:
    _hand_over(pod.folder / "i.sock", [])
    pod.start(iommufd=str(pod.folder / "i.sock"))
    _fault(pod.end(), "cannot take over /dev/iommu", "the service sent no descriptor")


def test_a_libvirt_without_iommufd_is_told_by_name(pod: Pod) -> None:
    with open("/dev/null", "rb") as handle:
        _hand_over(pod.folder / "i.sock", [handle.fileno()])
        pod.start(script={"version": 11_003_000}, iommufd=str(pod.folder / "i.sock"))
        _fault(pod.end(), "<iommufd>: needs libvirt 12.2 or newer, running is 11.3.0")

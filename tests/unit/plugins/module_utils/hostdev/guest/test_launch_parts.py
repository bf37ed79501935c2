"""The launcher's small decisions, one by one."""

from __future__ import annotations

import io
import json
import os
import queue
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.described import Described, describe
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.launch import emulated, process_start
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.life import Life
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.report import Outcome, Reporter
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.session import fault_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.workplace import Workplace
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root


@pytest.mark.parametrize(
    ("wish", "node", "expected"),
    [("auto", True, False), ("auto", False, True), ("always", True, True), ("always", False, True), ("never", True, False)],
)
def test_emulation_follows_the_wish_and_the_node(tmp_path: Path, wish: str, node: bool, expected: bool) -> None:
    if node:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/kvm").touch()
    assert emulated(Root(tmp_path), wish) is expected


def test_never_emulation_without_kvm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"/dev/kvm: the container does not have it.*launcher_emulation"):
        emulated(Root(tmp_path), "never")


def test_a_process_knows_when_it_began() -> None:
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process_start(Root())
    assert 0 <= age < 86400


def test_without_proc_a_process_begins_now(tmp_path: Path) -> None:
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - process_start(Root(tmp_path)) < 60


def test_a_domain_is_described_by_its_name_serial_files_and_devices() -> None:
    address = "<address domain='0x0000' bus='0x65' slot='0x00' function='0x1'/>"
    hostdev = f"<hostdev mode='subsystem' type='pci'><source>{address}</source><alias name='ua-gpu-gpu1'/></hostdev>"
    serial = "<serial type='file'><source path='/w/serial0'/></serial><serial type='unix'><source path='/w/x'/></serial>"
    xml = f"<domain type='kvm'><name>n</name><devices>{hostdev}{serial}</devices></domain>"
    assert describe(xml) == Described("n", ("/w/serial0",), (("gpu-gpu1", "0000:65:00.1"),))


def test_what_is_no_xml_is_a_fault() -> None:
    with pytest.raises(Fault, match="cannot read the domain's XML"):
        describe("<domain>")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("internal error: VFIO_MAP_DMA failed: Cannot allocate memory", "memory lock"),
        ("vfio 0000:65:00.0: group is not viable", "vfio-pci"),
        ("Could not access KVM kernel module: /dev/kvm: Permission denied", "launcher_emulation"),
        ("something else", ""),
    ],
)
def test_known_words_of_libvirt_get_a_hint(said: str, hint: str) -> None:
    fault = fault_of(RuntimeError(said), "start the guest", "n")
    assert hint in fault.hint
    assert bool(hint) == bool(fault.hint)
    assert said in fault.cause


def _reporter(folder: Path) -> Reporter:
    return Reporter(Workplace(folder), folder / "termination", io.StringIO())


def test_a_termination_message_fits_the_kubelet(tmp_path: Path) -> None:
    (tmp_path / "termination").touch()
    assert _reporter(tmp_path).end(Outcome("Failed", "Fault", "x" * 10000, 1)) == 1
    text = (tmp_path / "termination").read_text(encoding="utf-8")
    assert len(text) < 4096
    assert json.loads(text)["reason"] == "Fault"


def test_reports_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    reporter = _reporter(tmp_path / "absent")
    reporter.state("Running")
    assert reporter.end(Outcome("Succeeded", "GuestShutdown", "", 0)) == 0
    assert os.listdir(tmp_path) == []


class _OldLibvirt:
    """A session whose connection is to libvirt 9.0.0, and which nobody may ask for a domain."""

    VIR_DOMAIN_EVENT_ID_LIFECYCLE = 0
    pid = -1

    def connect(self, _library: Any) -> Any:
        return self

    def domainEventRegisterAny(self, *_given: Any) -> int:  # noqa: N802 - the real one's name
        return 0

    def getLibVersion(self) -> int:  # noqa: N802
        return 9_000_000


def test_what_this_libvirt_is_too_old_for_is_refused_before_it_is_handed_over(tmp_path: Path) -> None:
    old: Any = _OldLibvirt()
    reporter = Reporter(Workplace(tmp_path), tmp_path / "termination")
    xml = "<domain><iommufd enabled='yes' fdgroup='iommu'/></domain>"
    life = Life(old, old, xml, "guest", 1.0, reporter, queue.SimpleQueue())
    with pytest.raises(Fault, match=r"<iommufd>: needs libvirt 12\.2 or newer, running is 9\.0\.0"):
        life.run()

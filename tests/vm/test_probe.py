"""The probe guest against the test devices, without a worker between: both sides of every later proof."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.tests.vm.devices import GPU, Servers, Slot
from ansible_collections.vfio.passthrough.tests.vm.probe import probe_elf
from ansible_collections.vfio.passthrough.tests.vm.qemu import accelerator, qemu

MACHINE = ("-cpu", "qemu64", "-machine", "pc", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path, tmp_path)
    yield running
    running.stop()


def test_devices_answer_copy_memory_and_interrupt(servers: Servers, tmp_path: Path) -> None:
    slot = Slot("card", 1, GPU[:1])
    servers.start(slot)
    # the machine pc has no root ports: the device sits on its only bus
    placed = {name: value for name, value in slot.devices(tmp_path)[0].items() if name not in ("bus", "addr")}
    devices = ("-device", "edu,addr=5", "-device", json.dumps({**placed, "addr": "6"}))
    line = [str(qemu()), "-accel", accelerator(), *MACHINE, *devices, "-kernel", str(probe_elf()), "-serial", "stdio"]
    said = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300, stdin=subprocess.DEVNULL).stdout.split("\n")
    lines = [text.strip() for text in said if text.strip()]
    assert (lines[0], lines[-1]) == ("L2-BEGIN", "L2-END")
    assert "L2-EDU 00:05.0 id=010000ed live=edcba987 msicap=40 st=00000000 dma=c0ffee11 irr=00000002" in lines
    assert "L2-TEST 00:06.0 live=edcba987 msicap=a0 st=00000002 dma=c0ffee22 irr=00000002" in lines
    assert [text for text in lines if text.startswith("L2-PCI 00:06.0 10de:2684 class=030000 bar0=f")]
    log = servers.log("card").read_text(encoding="ascii")
    assert [text.split()[0] for text in log.splitlines() if text.startswith("dma_")] == ["dma_read", "dma_write"]

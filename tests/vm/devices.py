"""PCI devices for the worker: what each is made of, and the server processes of those that QEMU does not have itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .command import Device
from .links import wait_for

SERVER = Path(__file__).resolve().with_name("vfio_user.py")


@dataclass(frozen=True)
class Function:
    """One PCI function: numbers as lspci -n shows them."""

    vendor: int
    device: int
    pci_class: int
    bar_mib: int = 16


GPU = (Function(0x10DE, 0x2684, 0x030000), Function(0x10DE, 0x22BA, 0x040300))


@dataclass(frozen=True)
class Slot:
    """A device of one or more functions on one root port (1 to 12): PCI address 0000:PORT:00."""

    name: str
    port: int
    functions: tuple[Function, ...]

    def names(self) -> list[str]:
        """Return QEMU's id of each function: the slot's name, then name-1, name-2, ..."""
        return [self.name if number == 0 else f"{self.name}-{number}" for number in range(len(self.functions))]

    def devices(self, sockets: Path) -> list[Device]:
        """Return QEMU's description of each function, function 0 first."""
        described: list[Device] = []
        for number, name in enumerate(self.names()):
            device: Device = {"driver": "vfio-user-pci", "id": name, "bus": f"rp{self.port}", "addr": f"0.{number}"}
            # on every function: with it on the first alone hot-plug puts each into an IOMMU group of its own
            device["multifunction"] = len(self.functions) > 1
            device["socket"] = {"type": "unix", "path": str(sockets / name)}
            described.append(device)
        return described


def gpu(number: int) -> Slot:
    """Return GPU number 0, 1, ...: a display and an audio function in one group, at 0000:(number + 1):00."""
    return Slot(f"gpu{number}", number + 1, GPU)


class Servers:
    """The vfio-user servers of one worker; a server ends by itself when its QEMU does."""

    def __init__(self, sockets: Path, logs: Path) -> None:
        self.sockets, self.logs = sockets, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, slot: Slot) -> None:
        """Start a server for each function of the slot and wait until QEMU can connect."""
        for name, function in zip(slot.names(), slot.functions):
            (self.sockets / name).unlink(missing_ok=True)
            numbers = [f"{value:x}" for value in (function.vendor, function.device, function.pci_class)]
            line = [sys.executable, str(SERVER), str(self.sockets / name), str(self.log(name)), *numbers]
            line += ["--bar-mib", str(function.bar_mib)]
            if len(slot.functions) > 1:
                line.append("--multifunction")
            self._running[name] = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        for name in slot.names():
            wait_for(f"the server of {name}", (self.sockets / name).exists, lambda n=name: self._alive(n))  # type: ignore[misc]

    def log(self, name: str) -> Path:
        """Return the log of a function: FLR, RESET, map, unmap, set_irqs, dma_read, dma_write lines."""
        return self.logs / f"{name}.log"

    def stop(self) -> None:
        """End all servers."""
        for process in self._running.values():
            process.terminate()
            process.wait()
        self._running.clear()

    def _alive(self, name: str) -> bool:
        return self._running[name].poll() is None

"""A worker for people: starts one, says how to log in, stays until Ctrl-C (python -m ....tests.vm.machine)."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ..harness.say import say
from .machine import timed_worker


def main() -> None:
    """Start a worker as the command line asks and keep it until it is interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--boot", choices=("direct", "grub", "restore"), default="restore")
    parser.add_argument("--iommu-off", action="store_true", help="intel_iommu=off among the boot arguments")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--memory-mib", type=int, default=4096)
    given = parser.parse_args()
    arguments = "intel_iommu=off" if given.iommu_off else ""
    boot = "direct" if given.boot == "restore" else given.boot
    with tempfile.TemporaryDirectory(prefix="worker-try-") as folder:
        options = {"boot": boot, "gpus": given.gpus, "memory_mib": given.memory_mib, "default_arguments": arguments}
        with timed_worker(Path(folder), restore=given.boot == "restore", **options) as worker:
            say(f"ssh -p {worker.port} -i {worker.key} {' '.join(worker.shell.common)} root@127.0.0.1")
            say(f"console: {worker.files.serial}; QEMU: pid {worker.process.pid if worker.process else 0}")
            say(f"inventory: {worker.inventory_line()}")
            say("Ctrl-C ends it")
            try:
                while worker.process is not None:
                    worker.process.wait()
                    worker.process = None
            except KeyboardInterrupt:
                say("ending it")

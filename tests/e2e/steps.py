"""The steps of one device's way there and back, each with what has to be true after it. Demo and test play the same."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from dataclasses import dataclass

from ..harness.say import say, step
from .chain import record
from .line import AUDIOS, GPUS, RESOURCE, TREE, Line

EXAMPLE = TREE / "examples/gpu-vm.yaml"
POD = "vm-gpu-vm"
FUNCTIONS = GPUS + AUDIOS


class NotSo(AssertionError):
    """Something that has to be true is not."""


@dataclass(frozen=True)
class Before:
    """What the worker was before anything was done to it."""

    files: dict[str, str]
    audio: list[str]


def insist(true: bool, text: str) -> None:
    """Raise NotSo unless true."""
    if not true:
        raise NotSo(text)


def show(title: str, text: str) -> None:
    """Print a block of what was measured."""
    sys.stdout.write(f"\n--- {title}\n")
    sys.stdout.write("".join(f"    {line}\n" for line in textwrap.dedent(text).strip().splitlines()))
    sys.stdout.flush()


def drivers(line: Line) -> str:
    """Return the driver of every function of both groups, a line each."""
    return "\n".join(f"{address} driver {driver or 'none'}" for address, driver in zip(FUNCTIONS, line.drivers(FUNCTIONS)))


def look(line: Line) -> Before:
    """Take down the worker's state: the IOMMU off by its boot arguments, the GPUs on their own driver."""
    before = Before(line.files(), line.drivers(AUDIOS))
    show("the worker before", f"command line: {line.cmdline()}\n{drivers(line)}")
    insist("intel_iommu=off" in line.cmdline().split(), "the worker did not start with the IOMMU switched off")
    insist(line.drivers(GPUS) == ["nvidia"] * 2, "the GPUs are not held by the driver nvidia")
    return before


def deploy(line: Line) -> None:
    """Run site.yml; both groups are on vfio-pci after it, and the node offers two units."""
    with step("ansible-playbook -i inventory vfio.passthrough.site", "4 min, one reboot included"):
        play = line.site(show=True)
    insist(play.code == 0, f"site.yml failed: {play.out[-3000:]}")
    insist(line.drivers(FUNCTIONS) == ["vfio-pci"] * 4, f"not every function is on vfio-pci: {drivers(line)}")
    insist("intel_iommu=off" not in line.cmdline().split(), "the worker still runs with intel_iommu=off")
    insist(line.allocatable() == "2", f"the node offers {line.allocatable()!r} of {RESOURCE}, not 2")


def guest(line: Line) -> str:
    """Run the example's guest to its end and return its log; the guest lists the GPU and its DMA came back."""
    with step("create a VM from examples/gpu-vm.yaml and wait for the guest's words", "1 min"):
        play = line.vm(EXAMPLE, show=True)
        insist(play.code == 0, f"vm.yml failed: {play.out[-3000:]}")
        log = wait_log(line, POD)
    measured(log)
    insist(proven(log), f"the guest did not prove its device: {log[-3000:]}")
    say(f"what `hostdev explain` says now: {record(line)}")
    with step("delete the VM", "10 s"):
        insist(line.vm(EXAMPLE, "absent").code == 0, "the VM could not be deleted")
    return log


def again(line: Line) -> None:
    """Run site.yml again; nothing changes."""
    with step("run site.yml again: nothing changes", "1 min"):
        play = line.site()
    insist(play.code == 0 and play.recap().get("changed") == 0, f"the second run changed something: {play.out[-3000:]}")
    say(f"second run: {play.recap()}")


def back(line: Line, before: Before) -> None:
    """Run release_devices.yml; the worker is as it was."""
    with step("ansible-playbook -i inventory vfio.passthrough.release_devices", "2 min"):
        play = line.release(show=True)
    insist(play.code == 0, f"release_devices.yml failed: {play.out[-3000:]}")
    insist(line.drivers(FUNCTIONS) == ["nvidia"] * 2 + before.audio, f"drivers after the release: {drivers(line)}")
    insist(line.allocatable() in ("0", ""), f"the node still offers {line.allocatable()} of {RESOURCE}")
    changed = [path for path, text in line.files().items() if text != before.files[path]]
    insist(not changed, f"not as before: {changed}")
    insist(line.left_over() == [], f"left over: {line.left_over()}")
    show("the worker after", f"{drivers(line)}\nboot loader's files as before; nothing of ours left")


def wait_log(line: Line, pod: str, seconds: float = 300.0) -> str:
    """Return a launcher's log once it has said how the guest's run ended."""
    limit = time.monotonic() + seconds
    while True:
        log = line.log(pod)
        if re.search(r"hostdev launch: (Succeeded|Failed): ", log) or time.monotonic() > limit:
            return log
        time.sleep(2)


def guest_lines(log: str) -> str:
    """Return the guest's own serial lines."""
    return "\n".join(re.findall(r"L2-(?:BEGIN|PCI|TEST|END).*", log))


def proven(log: str) -> bool:
    """Return whether the guest lists the GPU and its DMA round trip came back."""
    return bool(re.search(r"L2-PCI \S+ 10de:2684 ", log)) and bool(re.search(r"L2-TEST .* st=00000002 dma=c0ffee22", log))


def measured(log: str) -> None:
    """Print the three facts that the project's first source left unmeasured."""
    said = log.replace("hostdev launch: ", "")
    show(
        "environment variable in the launcher, from the kubelet's Allocate",
        "\n".join(re.findall(r"^PCI_RESOURCE_\S+=\S+", said, re.MULTILINE)),
    )
    show("domain XML: the device", "\n".join(re.findall(r"^ *<hostdev .*?</hostdev>", said, re.DOTALL | re.MULTILINE)))
    show("the guest's own serial output", guest_lines(log))

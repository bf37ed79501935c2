"""`make demo`: one device all the way - host, Kubernetes, guest - and back, on real parts, with what was measured."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ..cluster.controlplane import ControlPlane
from ..harness.say import say
from . import steps
from .line import Line, start


def run(line: Line) -> None:
    """Play the demo on a line that stands."""
    before = steps.look(line)
    steps.deploy(line)
    chain = line.chain()
    log = steps.guest(line)
    steps.again(line)
    steps.back(line, before)
    steps.show("the chain, as site.yml left it", chain)
    steps.show("and what the guest said", steps.guest_lines(log))


def main() -> int:
    """Set the line up, play the demo, take everything down."""
    say("the demo takes about 10 minutes on 2 quiet cores, 25 the first time (Kubernetes is built once)")
    with tempfile.TemporaryDirectory(prefix="vfio-demo-") as folder, ControlPlane() as plane:
        line = start(Path(folder), plane)
        with line.worker:
            try:
                run(line)
            except steps.NotSo as not_so:
                sys.stdout.write(f"\nthe demo did not end well: {not_so}\n")
                return 1
    say("the demo ended well")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

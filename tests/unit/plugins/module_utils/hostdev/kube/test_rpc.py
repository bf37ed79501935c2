"""gRPC beside what forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import rpc

_FORKS = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.rpc import grpc
server = grpc.server(ThreadPoolExecutor(2))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
for number in range(40):
    child = os.fork()
    if child == 0:
        os.execv("/bin/true", ["true"])
    os.waitpid(child, 0)
server.stop(0).wait()
"""


def test_children_are_born_beside_a_server(tmp_path: os.PathLike[str]) -> None:
    """A fork in the library's handlers hung the service for ever; the time limit only ends a hanging test."""
    assert rpc.grpc is not None
    # the folder above ansible_collections: under ansible-test only its own loader finds that
    above = str(Path(rpc.__file__).parents[7])
    env = {**os.environ, "PYTHONPATH": above}
    done = subprocess.run([sys.executable, "-c", _FORKS, f"{tmp_path}/s"], timeout=120, check=False, env=env)
    assert done.returncode == 0


def test_the_librarys_fork_handlers_are_off() -> None:
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"

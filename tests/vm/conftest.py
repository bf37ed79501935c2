from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.vfio.passthrough.tests.vm.machine import Worker, timed_worker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A restored worker with two GPUs, shared by the tests of one file."""
    with timed_worker(tmp_path_factory.mktemp("worker"), restore=True) as machine:
        yield machine

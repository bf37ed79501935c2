from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def native_node(control_plane: ControlPlane) -> Iterator[NativeNode]:
    with NativeNode(control_plane) as node:
        yield node

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.kubevirt import Cluster, crd_names, install
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def native_node(control_plane: ControlPlane) -> Iterator[NativeNode]:
    with NativeNode(control_plane) as node:
        yield node


@pytest.fixture(scope="module")
def kubevirt_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return a cluster that knows KubeVirt's kinds and has its namespace."""
    install(control_plane)
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}})
    yield control_plane
    control_plane.kubectl("delete", "crd", *crd_names(), "--ignore-not-found")


@pytest.fixture
def cluster(kubevirt_plane: ControlPlane) -> Iterator[Cluster]:
    """Return the cluster without any object of KubeVirt's kinds."""
    yield Cluster(kubevirt_plane)
    for name in crd_names():
        kubevirt_plane.kubectl("delete", name, "--all", "-n", "kubevirt", check=False)

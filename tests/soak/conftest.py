from __future__ import annotations

from ansible_collections.vfio.passthrough.tests.cluster.conftest import control_plane, native_node
from ansible_collections.vfio.passthrough.tests.cluster.test_restarts import _plugin
from ansible_collections.vfio.passthrough.tests.vm.conftest import worker

__all__ = ["_plugin", "control_plane", "native_node", "worker"]

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode, log_text
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase


def test_control_plane_answers_with_its_version(control_plane: ControlPlane) -> None:
    assert control_plane.kubectl("get", "--raw", "/readyz") == "ok"
    assert "v1.36.3" in control_plane.kubectl("version", "-o", "json")


def test_python_client_reads_namespaces(control_plane: ControlPlane) -> None:
    from kubernetes import client

    default: Any = client.CoreV1Api(control_plane.client()).read_namespace("default")
    assert default.status.phase == "Active"


def test_native_node_is_ready_and_leaves_the_machines_kubelet_folder_alone(native_node: NativeNode) -> None:
    assert native_node.ready()
    assert (native_node.device_plugins / "kubelet.sock").is_socket()
    assert not Path("/var/lib/kubelet/device-plugins/kubelet.sock").exists()


def test_pod_runs_and_its_log_is_read(control_plane: ControlPlane, native_node: NativeNode) -> None:
    control_plane.apply(pod("hello", ["sh", "-c", "echo one two; id"], node=native_node.name, user=107))
    wait_for_phase(control_plane, "hello", "Succeeded")
    log = native_node.pod_log("default", "hello", "main")
    assert log.startswith("one two\nuid=107 gid=107")
    assert control_plane.kubectl("logs", "hello") == log
    control_plane.kubectl("delete", "pod", "hello")


def test_kubelet_restart_keeps_a_running_pod_and_makes_a_new_socket(control_plane: ControlPlane, native_node: NativeNode) -> None:
    control_plane.apply(pod("stays", node=native_node.name))
    before = wait_for_phase(control_plane, "stays", "Running")
    old = os.stat(native_node.device_plugins / "kubelet.sock").st_ino, native_node.children.running["kubelet"].pid
    native_node.restart_kubelet()
    assert (os.stat(native_node.device_plugins / "kubelet.sock").st_ino, native_node.children.running["kubelet"].pid) != old
    after = wait_for_phase(control_plane, "stays", "Running")
    restarts = [status["restartCount"] for status in after["status"]["containerStatuses"]]
    assert (after["metadata"]["uid"], restarts) == (before["metadata"]["uid"], [0])
    control_plane.kubectl("delete", "pod", "stays")


def test_killed_kubelet_comes_back(control_plane: ControlPlane, native_node: NativeNode) -> None:
    native_node.kill_kubelet()
    assert "kubelet" not in native_node.children.running
    native_node.start_kubelet()
    control_plane.apply(pod("after-kill", ["true"], node=native_node.name))
    wait_for_phase(control_plane, "after-kill", "Succeeded")
    control_plane.kubectl("delete", "pod", "after-kill")


def test_log_text_joins_partial_lines() -> None:
    assert log_text("T stdout P ab\nT stdout F c d\nT stderr F \n") == "abc d\n\n"

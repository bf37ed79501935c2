"""The launcher's image in a pod of a real kubelet: no device, no privilege, the container runtime's own limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ansible_collections.vfio.passthrough.files.image.archive import Entry, write_image, write_layer
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.pod import COMPUTE, PodSettings
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.workload import objects
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.vmi.manifest import parse_manifest
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.images import launcher_image, launcher_name
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.pods import wait_for_phase
from ansible_collections.vfio.passthrough.tests.fakes.pod import MODULE_UTILS, vmi
from ansible_collections.vfio.passthrough.tests.guest.guest import guest_elf

GUEST = "localhost/guest:1"
RUNTIME = MODULE_UTILS / "hostdev"
SECONDS = 180.0


@pytest.fixture(name="node", scope="module")
def _node(native_node: NativeNode, tmp_path_factory: pytest.TempPathFactory) -> NativeNode:
    """Return a node that has the launcher's image and that of the guest's kernel."""
    place = tmp_path_factory.mktemp("guest-image")
    layer = write_layer(place / "layer.tar", [Entry("guest.elf", guest_elf().read_bytes())])
    native_node.import_image(write_image(place / "guest.tar", GUEST, [layer], env={}, entrypoint=["/none"]))
    native_node.import_image(launcher_image(RUNTIME))
    return native_node


class Machine:
    """A VM of the test: its pod and ConfigMap."""

    def __init__(self, plane: ControlPlane, node: NativeNode, name: str) -> None:
        self.plane, self.node, self.name = plane, node, name

    def start(self, arguments: str, text: str = "") -> None:
        """Apply pod and ConfigMap of a guest with these kernel arguments; text: what stands in place of its description."""
        document = vmi(arguments, grace=30)
        document["metadata"]["name"] = self.name
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.node.name}
        boot = document["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
        boot.update(image=GUEST, imagePullPolicy="Never")
        settings = PodSettings(image=launcher_name(RUNTIME), emulated=True, pull_policy="Never")
        for made in objects(parse_manifest(document), settings):
            if text and made["kind"] == "ConfigMap":
                made["data"]["vmi.json"] = text
            if made["kind"] == "Pod" and not self.node.measures_disk():
                del made["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"]
            self.plane.apply(made)

    def ended(self, *phases: str) -> dict[str, str]:
        """Wait for the pod's end in one of the phases; return the launcher's message."""
        status = wait_for_phase(self.plane, f"vm-{self.name}", *phases, seconds=SECONDS)["status"]
        message: dict[str, str] = json.loads(status["containerStatuses"][0]["state"]["terminated"]["message"])
        return message

    def log(self) -> str:
        return self.node.pod_log("default", f"vm-{self.name}", COMPUTE)

    def wait_ready(self) -> None:
        self.plane.kubectl("wait", "--for=condition=Ready", f"pod/vm-{self.name}", f"--timeout={SECONDS:.0f}s")

    def forget(self) -> None:
        for kind in ("pod", "configmap"):
            self.plane.kubectl("delete", kind, f"vm-{self.name}", "--ignore-not-found", "--grace-period=1")


@pytest.fixture(name="machine")
def _machine(control_plane: ControlPlane, node: NativeNode, request: pytest.FixtureRequest) -> Iterator[Machine]:
    machine = Machine(control_plane, node, request.node.name.replace("_", "-").removeprefix("test-"))
    yield machine
    machine.forget()


def test_powered_off(machine: Machine) -> None:
    machine.start("off")
    message = machine.ended("Succeeded", "Failed")
    log = machine.log()
    assert message == {"state": "Succeeded", "reason": "GuestShutdown", "message": "the guest powered off"}, log
    assert "GUEST-BEGIN" in log
    assert "GUEST-OFF" in log
    assert "own time" in log


def test_deleted_pod(machine: Machine) -> None:
    machine.start("button")
    machine.wait_ready()
    # libvirt writes what it has asked QEMU itself with mode 0600: it believes what the image brings
    asked = (machine.node.kubelet_folder / "pods").glob("*/volumes/*/*/cache/libvirt/qemu/cache/capabilities/*.xml")
    assert {file.stat().st_mode & 0o777 for file in asked} == {0o644}
    # the kubelet deletes the file with the pod; whoever has it open can still read it
    file = next((machine.node.folder / "log" / "pods").glob(f"default_vm-{machine.name}_*/{COMPUTE}/0.log"))
    with file.open(encoding="utf-8") as log:
        machine.plane.kubectl("delete", "pod", f"vm-{machine.name}", "--wait=true")
        text = log.read()
    assert "SIGTERM: asking the guest to power off, within 30 s" in text
    assert "GUEST-OFF" in text
    assert "Succeeded: GuestShutdown" in text


def test_wrong_description(machine: Machine) -> None:
    machine.start("off", text="{}")
    message = machine.ended("Failed")
    assert (message["state"], message["reason"]) == ("Failed", "Refused")
    assert "apiVersion" in message["message"]

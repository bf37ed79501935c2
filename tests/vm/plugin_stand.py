"""The device plugin service on a worker as the role leaves it there, and a stand-in kubelet beside it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import jinja2
import yaml

from .links import wait_for
from .machine import Worker

TREE = Path(__file__).resolve().parents[2]
RUNTIME = TREE / "plugins/module_utils/hostdev"
UNIT = "vfio-passthrough-device-plugin.service"
CONFIG = "/etc/vfio-passthrough/devices.json"
STATE = "/run/vfio-passthrough/devices.json"
RELEASE = "usr/lib/vfio-passthrough/releases/test"
COLLECTION = "run/test-tree/ansible_collections/vfio/passthrough"
PROGRAMS = ("tests/fakes/kubelet.py", "tests/vm/kubelet_agent.py", "tests/vm/grant_peer.py")
PYTHON = "export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/run/test-tree"
PATIENCE = 60.0  # a fifth of the service's slow check: what is told within it was told by an event
UID = 107


class KubeletFault(RuntimeError):
    """The kubelet was refused, with the plugin's text, or waited in vain."""


def role_defaults() -> dict[str, Any]:
    """Return the values with which the role renders its unit when nobody sets any."""
    values: dict[str, Any] = yaml.safe_load((TREE / "roles/device_plugin/defaults/main.yml").read_text(encoding="utf-8"))
    return values


def unit_text() -> str:
    """Return the unit as the role renders it."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string((TREE / "files/systemd" / UNIT).read_text(encoding="utf-8")).render(role_defaults())


def shipment() -> bytes:
    """Return a tar of the runtime as a release, the unit, and the programs of the tests."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:

        def link(name: str, target: str) -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)

        for path in sorted(RUNTIME.rglob("*.py")):
            tar.add(path, f"{RELEASE}/hostdev/{path.relative_to(RUNTIME)}")
        link("usr/lib/vfio-passthrough/current", "releases/test")
        link(f"{COLLECTION}/plugins/module_utils/hostdev", f"/{RELEASE}/hostdev")
        for name in PROGRAMS:
            tar.add(TREE / name, f"{COLLECTION}/{name}")
        text = unit_text().encode()
        entry = tarfile.TarInfo(f"etc/systemd/system/{UNIT}")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


class Stand:
    """Service and kubelet on one worker. reactions: how long the service took to tell, of each `cause`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.folder = str(role_defaults()["device_plugin_folder"])
        self.reactions: list[float] = []
        self._agent: Any = None

    def start(self, *entries: dict[str, Any]) -> None:
        """Install the service with a declaration, start a kubelet and then the service."""
        unpack = "tar -C / --keep-directory-symlink --no-same-owner -x"
        self.worker.ssh(f"{unpack} && mkdir -p {self.folder} /etc/vfio-passthrough", input=shipment())
        self.declare(*entries)
        self._agent = self.worker.shell.start(f"{PYTHON}; exec python3 /{COLLECTION}/tests/vm/kubelet_agent.py {self.folder}")
        self.registered()
        self.worker.ssh(f"systemctl daemon-reload && systemctl start {UNIT} || {{ journalctl -u {UNIT} -o cat >&2; false; }}")

    def stop(self) -> None:
        """End the kubelet; the service ends with the worker."""
        if self._agent is not None:
            self._agent.stdin.close()
            self._agent.wait()
            self._agent = None

    def declare(self, *entries: dict[str, Any], **more: Any) -> None:
        """Write the configuration, as one replacement of the file."""
        text = json.dumps({"devices": list(entries), **more})
        self.worker.ssh(f"cat >{CONFIG}.new && mv {CONFIG}.new {CONFIG}", input=text)

    # -- the kubelet's side ------------------------------------------------------------------------------------------

    def wait(self, resource: str, *healthy: str) -> dict[str, Any]:
        """Wait until exactly these units of a resource are healthy; return its list then, {id: {"health": ..., "numa": [...]}}."""
        self._ask("wait", resource=resource, healthy=sorted(healthy), seconds=PATIENCE)
        return self.lists(resource)[-1]

    def cause(self, writes: Sequence[tuple[str, str]], resource: str, *healthy: str) -> float:
        """Write texts to the worker's files and wait until of it exactly these units are healthy; return the seconds that it took."""
        times = self._ask("cause", writes=list(writes), resource=resource, healthy=sorted(healthy), seconds=PATIENCE)
        # from the kernel's return: what it does before is no work of the service
        self.reactions.append(times["told"] - times["wrote"])
        return self.reactions[-1]

    def lists(self, resource: str) -> list[dict[str, Any]]:
        """Return every list of a resource so far."""
        found: list[dict[str, Any]] = self._ask("lists", resource=resource)
        return found

    def registered(self) -> list[str]:
        """Return the resources in the order of their registrations."""
        found: list[str] = self._ask("registered")
        return found

    def restart_kubelet(self) -> None:
        """Restart the kubelet."""
        self._ask("restart")

    def allocate(self, resource: str, *containers: list[str]) -> list[dict[str, Any]]:
        """Return the answer for each container; KubeletFault when the plugin refuses."""
        found: list[dict[str, Any]] = self._ask("allocate", resource=resource, containers=list(containers))
        return found

    def _ask(self, name: str, **arguments: Any) -> Any:
        self._agent.stdin.write(json.dumps({"do": name, **arguments}).encode() + b"\n")
        self._agent.stdin.flush()
        line = self._agent.stdout.readline()
        if not line:
            raise RuntimeError(f"the kubelet on the worker has ended: {self._agent.stderr.read().decode()[-2000:]}")
        answer = json.loads(line)
        if "fault" in answer:
            late = answer["fault"].startswith("TimeoutError")
            raise KubeletFault(f"{answer['fault']}\n{self.journal()}" if late else answer["fault"])
        return answer["is"]

    # -- the node's side ---------------------------------------------------------------------------------------------

    def restart_service(self) -> None:
        """Restart the service."""
        self.worker.ssh(f"systemctl restart {UNIT}")

    def service_pid(self) -> int:
        """Return the service's process."""
        return int(self.worker.ssh(f"systemctl show -p MainPID --value {UNIT}"))

    def state(self) -> dict[str, Any]:
        """Return the service's state file."""
        found: dict[str, Any] = json.loads(self.worker.ssh(f"cat {STATE}"))
        return found

    def wait_reason(self, name: str, text: str) -> None:
        """Wait until the state file gives a reason why a device, by its address or name, is not handed out."""

        def told() -> bool:
            found = self.state()
            reasons = [one["reason"] for one in found["units"] if one["name"] == name]
            reasons += [one["detail"] for one in found["skipped"] if one["address"] == name]
            return any(text in reason for reason in reasons)

        wait_for(f"{name} to be withheld for {text!r}", told, self.worker.running, PATIENCE)

    def journal(self) -> str:
        """Return the last that the service has said."""
        return self.worker.ssh(f"journalctl -u {UNIT} -o cat --no-pager -n 40")

    def peer(self, *answers: dict[str, Any], memlock: int = 0, uid: int = UID) -> dict[str, Any]:
        """Return what a container that was given these answers has after asking at its sockets (see grant_peer.py)."""
        program = f"{PYTHON}; unshare --mount python3 /{COLLECTION}/tests/vm/grant_peer.py"
        said: dict[str, Any] = json.loads(self.worker.ssh(f"{program} {uid} {memlock}", input=json.dumps(answers)))
        return said


def value(answer: dict[str, Any], name: str) -> Optional[str]:
    """Return a variable of an answer to Allocate, None without it."""
    found: Optional[str] = answer.get("envs", {}).get(name)
    return found


def nodes(answer: dict[str, Any]) -> list[str]:
    """Return the device nodes of an answer to Allocate, in its order."""
    return [one["container_path"] for one in answer.get("devices", [])]

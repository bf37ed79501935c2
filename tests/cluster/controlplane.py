"""A real control plane on this machine: etcd, API server, scheduler and controller manager as child processes."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, final

from ..harness.say import say, step
from . import binaries
from .pki import Authority
from .processes import Children, free_ports

LOOPBACK = "127.0.0.1"
SLIRP_HOST = "10.0.2.2"  # this machine as a guest of QEMU's user network sees it; slirp ends there on our loopback
SERVICES = "10.96.0.0/16"
NAMES = (LOOPBACK, "10.96.0.1", SLIRP_HOST, "localhost", "kubernetes.default.svc")


@final
class ControlPlane:
    """Context manager: a control plane whose state is below `folder` (a temporary one by default, removed at the end).

    Inside, pods may be created at once: the API server is ready and the default service account exists.
    `kubeconfig` is the administrator's.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="vfp-cp-")) if folder is None else folder
        self.programs = binaries.kubernetes()
        self.etcd_port, self.etcd_peer_port, self.port = free_ports(3)
        self.children = Children(self.folder / "log")
        self.authority = Authority(self.folder / "pki")
        self.kubeconfig = self._kubeconfig("admin", *self.authority.issue("admin", "admin", "system:masters"), LOOPBACK)
        self._clients: list[Any] = []

    def __enter__(self) -> ControlPlane:
        try:
            with step("start the control plane", "10 s"):
                self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; remove the state when the folder was ours to make."""
        for client in self._clients:
            client.close()
        self.children.end()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def server(self, host: str = LOOPBACK) -> str:
        """Return the API server's URL as seen from a host: LOOPBACK here, SLIRP_HOST in a VM."""
        return f"https://{host}:{self.port}"

    def node_kubeconfig(self, name: str, server_host: str = LOOPBACK) -> Path:
        """Return a kubeconfig file with the identity that node NAME's kubelet has (group system:nodes)."""
        return self._kubeconfig(name, *self.authority.issue(name, f"system:node:{name}", "system:nodes"), server_host)

    def user_kubeconfig(self, name: str) -> Path:
        """Return a kubeconfig file of a user who may do what roles are bound to that name, and nothing else."""
        return self._kubeconfig(name, *self.authority.issue(name, name), LOOPBACK)

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints; its message is in the error when it fails (check=False: then the empty text)."""
        command = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return `kubectl get ... -o json` as values."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, manifest: Any) -> None:
        """Create or change objects given as values (one, or a list)."""
        items = manifest if isinstance(manifest, list) else [manifest]
        self.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def client(self) -> Any:
        """Return a kubernetes.client.ApiClient with the administrator's rights; closed together with this object."""
        from kubernetes import config

        client: Any = config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]
        self._clients.append(client)
        return client

    def _start(self) -> None:
        self.children.start("etcd", _etcd(self.folder / "etcd", self.etcd_port, self.etcd_peer_port))
        self.children.start("kube-apiserver", self._api_server())
        self.children.wait_for("API server", lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok")
        self.children.start("kube-scheduler", self._scheduler())
        self.children.start("kube-controller-manager", self._controller_manager())
        look = ("get", "serviceaccount", "default", "-n", "default", "-o", "name", "--ignore-not-found")
        self.children.wait_for("default service account", lambda: bool(self.kubectl(*look, check=False)))

    def _api_server(self) -> Sequence[str]:
        certificate, key = self.authority.issue("apiserver", "kube-apiserver", alternatives=NAMES)
        client, client_key = self.authority.issue("kubelet-client", "apiserver-kubelet-client", "system:masters")
        public, private = self.authority.signing_pair("service-accounts")
        return [
            str(self.programs / "kube-apiserver"),
            f"--etcd-servers=http://{LOOPBACK}:{self.etcd_port}",
            f"--secure-port={self.port}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--client-ca-file={self.authority.certificate}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--kubelet-client-certificate={client}",
            f"--kubelet-client-key={client_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={private}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",  # node names resolve nowhere
            "--allow-privileged",
        ]

    def _scheduler(self) -> Sequence[str]:
        name = "system:kube-scheduler"
        config = self._kubeconfig("scheduler", *self.authority.issue("scheduler", name), LOOPBACK)
        return [str(self.programs / "kube-scheduler"), f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]

    def _controller_manager(self) -> Sequence[str]:
        name = "system:kube-controller-manager"
        config = self._kubeconfig("controller-manager", *self.authority.issue("controller-manager", name), LOOPBACK)
        return [
            str(self.programs / "kube-controller-manager"),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--service-account-private-key-file={self.authority.folder / 'service-accounts.key'}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _kubeconfig(self, name: str, certificate: Path, key: Path, host: str) -> Path:
        def data(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode("ascii")

        cluster = {"server": self.server(host), "certificate-authority-data": data(self.authority.certificate)}
        user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")  # JSON is YAML
        return path


def _etcd(data: Path, port: int, peer_port: int) -> Sequence[str]:
    clients, peers = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        binaries.program("etcd"),
        f"--data-dir={data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a control plane, with --node a node beside it, until it is interrupted."""
    parser = argparse.ArgumentParser(prog="controlplane", description=main.__doc__)
    parser.add_argument("--node", action="store_true", help="also run a node (containerd and kubelet) on this machine")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        if options.node:
            from .node import NativeNode

            node = stack.enter_context(NativeNode(plane))
            say(f"device plugin folder, seen from outside: {node.device_plugins}")
        say(f"export KUBECONFIG={plane.kubeconfig}")
        say(f"kubectl is {plane.programs / 'kubectl'}; Ctrl-C ends all of it")
        _until_interrupted()
    return 0


def _until_interrupted() -> None:
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


if __name__ == "__main__":
    raise SystemExit(main())

"""Configuration files of a node: containerd, the kubelet and its network, as text for the places where they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAUSE = "localhost/pause:1"


def network(subnet: str, state: Path) -> str:
    """Return a CNI list: each pod a point-to-point link with an address of the subnet; leases are kept in `state`."""
    ipam = {"type": "host-local", "dataDir": str(state), "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}, indent=1)


def containerd(
    *,
    root: Path,
    state: Path,
    socket: Path,
    networks: Path,
    cdi: Path,
    snapshotter: str = "overlayfs",
    systemd: bool = False,
    privileged: bool = True,
    runc: str = "runc",
) -> str:
    """Return containerd's configuration, version 3.

    privileged=False is for a machine whose root lacks CAP_SYS_RESOURCE: no process then gets a lower OOM score than containerd's.
    runc: the program that makes containers.
    """
    return f"""version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {str(not privileged).lower()}
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
  conf_dir = "{networks}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = {str(systemd).lower()}
  BinaryName = "{runc}"
"""


def kubelet(*, socket: Path, authority: Path, extra: dict[str, Any]) -> str:
    """Return the kubelet's configuration file: what all nodes share, and what one adds."""
    value = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failSwapOn": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "readOnlyPort": 0,
        "resolvConf": "",
        "imageMinimumGCAge": "24h",
        "nodeStatusUpdateFrequency": "2s",
        "evictionHard": {"memory.available": "50Mi"},
        **extra,
    }
    return json.dumps(value, indent=1)

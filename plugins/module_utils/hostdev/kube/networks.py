"""A guest's Multus networks as the pod's annotations, and how the launcher learns what they became."""

from __future__ import annotations

import json
from typing import Any

from ..vmi import mounts
from ..vmi.networks import MultusNetwork, pod_interface
from ..vmi.spec import Spec

NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
VOLUME = "network-info"
# file -> the annotation that it shows
_SHOWN = {mounts.NETWORK_STATUS: "k8s.v1.cni.cncf.io/network-status", mounts.NETWORK_INFO: "kubevirt.io/network-info"}


def network_annotations(spec: Spec, namespace: str) -> dict[str, str]:
    """Return the annotations that Multus reads; none without a Multus network. namespace: of networks that name none."""
    macs = {one.name: one.mac_address for one in spec.domain.devices.interfaces}
    listed: list[dict[str, str]] = []
    made: dict[str, str] = {}
    for network in spec.networks:
        if network.multus and network.multus.default:
            made[DEFAULT_NETWORK] = "/".join(_place(network.multus, namespace))
        elif network.multus:
            space, name = _place(network.multus, namespace)
            mac = macs.get(network.name)
            listed.append({"name": name, "namespace": space, **({"mac": mac} if mac else {}), "interface": pod_interface(network.name)})
    return {**made, **({NETWORKS: json.dumps(listed, separators=(",", ":"))} if listed else {})}


def _place(network: MultusNetwork, namespace: str) -> tuple[str, str]:
    space, slash, name = network.network_name.partition("/")
    return (space, name) if slash else (namespace, space)


def information_volume() -> dict[str, Any]:
    """Return the volume in which the launcher reads which virtual function each network became; it fills when Multus has answered."""
    items = [{"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}} for file, name in _SHOWN.items()]
    return {"downwardAPI": {"items": items}}

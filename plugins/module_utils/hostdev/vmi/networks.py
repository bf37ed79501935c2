"""spec.networks and spec.domain.devices.interfaces: what the guest is connected to, and how."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..device.faults import Refused
from .names import check_label, check_object_name
from .schema import BOOLEAN, TEXT, at_least, checked, many, nested, one_of, row

# KubeVirt's pattern of a guest address (hwutil.PCI_ADDRESS_PATTERN)
_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_MAC = re.compile(r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")


def check_guest_address(text: str) -> str:
    """Return a PCI address inside the guest (dddd:bb:ss.f), or Refused."""
    if not _ADDRESS.fullmatch(text):
        raise Refused(what="accept a guest address", subject=repr(text), cause="has to be a PCI address like 0000:81:01.0")
    return text


def check_mac(text: str) -> str:
    """Return a MAC address of six bytes, or Refused."""
    if not _MAC.fullmatch(text):
        raise Refused(what="accept a MAC address", subject=repr(text), cause="has to be six bytes like de:ad:00:00:be:ef")
    return text


def check_attachment(text: str) -> str:
    """Return the name of a NetworkAttachmentDefinition, [NAMESPACE/]NAME, or Refused."""
    space, slash, name = text.rpartition("/")
    if slash:
        check_label(space)
    check_object_name(name)
    return text


def pod_interface(network: str) -> str:
    """Return the pod's interface of a network of Multus's: what Multus is asked to name it, and what it tells about (KubeVirt's scheme)."""
    return f"pod{hashlib.sha256(network.encode()).hexdigest()[:11]}"


@dataclass(frozen=True)
class Binding:
    """A way to connect an interface; it has no settings."""


@dataclass(frozen=True)
class Port:
    """A port of the guest that is reached by the same port of the pod."""

    port: int = row("port", at_least(1, 65535), required=True)
    name: str = row("name", checked(check_label), "")
    protocol: str = row("protocol", one_of("TCP", "UDP"), "TCP")


@dataclass(frozen=True)
class Interface:
    """One network card of the guest, connected to the network of its name in exactly one way.

    masquerade, passt and passt_binding are all served by a user network of QEMU's; sriov is a virtual function that
    another plugin gives to the pod. pci_address: where the guest sees it.
    """

    unserved: ClassVar[Mapping[str, str]] = {
        "bridge": "a bridge into the pod's network needs capabilities that a launcher pod has not; use masquerade",
        "slirp": "not served, as by KubeVirt; use masquerade",
        "macvtap": "not served, as by KubeVirt; use sriov",
        "binding": "binding plugins are not served; use masquerade, passt or sriov",
    }

    name: str = row("name", checked(check_label), required=True)
    masquerade: Binding | None = row("masquerade", nested(Binding))
    passt: Binding | None = row("passt", nested(Binding))
    passt_binding: Binding | None = row("passtBinding", nested(Binding))
    sriov: Binding | None = row("sriov", nested(Binding))
    model: str = row("model", one_of("virtio", "e1000", "e1000e", "rtl8139"), "")
    mac_address: str = row("macAddress", checked(check_mac), "")
    pci_address: str = row("pciAddress", checked(check_guest_address), "")
    boot_order: int | None = row("bootOrder", at_least(1))
    ports: tuple[Port, ...] = row("ports", many(nested(Port)), ())
    tag: str = row("tag", TEXT, "")
    state: str = row("state", one_of("up", "down"), "")

    @property
    def bindings(self) -> tuple[str, ...]:
        """Return the keys of the ways that are written; one is right."""
        ways = (("masquerade", self.masquerade), ("passt", self.passt), ("passtBinding", self.passt_binding), ("sriov", self.sriov))
        return tuple(key for key, way in ways if way is not None)


@dataclass(frozen=True)
class PodNetwork:
    """The pod's own network."""


@dataclass(frozen=True)
class MultusNetwork:
    """A NetworkAttachmentDefinition, [NAMESPACE/]NAME; default: in the place of the pod's own network."""

    network_name: str = row("networkName", checked(check_attachment), required=True)
    default: bool = row("default", BOOLEAN, default=False)


@dataclass(frozen=True)
class ClaimedNetwork:
    """A request of a DRA claim."""

    claim_name: str = row("claimName", TEXT, "")
    request_name: str = row("requestName", TEXT, "")


@dataclass(frozen=True)
class Network:
    """One network: a name and exactly one source."""

    name: str = row("name", checked(check_label), required=True)
    pod: PodNetwork | None = row("pod", nested(PodNetwork))
    multus: MultusNetwork | None = row("multus", nested(MultusNetwork))
    resource_claim: ClaimedNetwork | None = row("resourceClaim", nested(ClaimedNetwork))

    @property
    def sources(self) -> int:
        """Return how many sources the network has; one is right."""
        return sum(source is not None for source in (self.pod, self.multus, self.resource_claim))

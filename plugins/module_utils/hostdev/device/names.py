"""Names that kernel, Kubernetes and launcher agree upon: environment variables, their values, sockets.

KubeVirt's util.ResourceNameToEnvVar and its launcher's AddressPool are the contract (C3 and C4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .faults import Refused

PREFIXES: dict[str, str] = {"pci": "PCI_RESOURCE", "mdev": "MDEV_PCI_RESOURCE", "usb": "USB_RESOURCE"}
COMPANIONS = "HOSTDEV_COMPANIONS"

# Kubernetes: IsQualifiedName with a mandatory prefix (apimachinery/pkg/util/validation)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def variable(prefix: str, resource: str) -> str:
    """Return PREFIX_RESOURCE: upper case, each '/' and '.' an underscore, nothing else changed (KubeVirt pkg/util/util.go)."""
    return f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}"


def addresses_of(value: str) -> list[str]:
    """Return the entries of a variable's value; one trailing comma is dropped, as KubeVirt's launcher does.

    Refused when an entry is empty: KubeVirt keeps it and fails later, far from the cause.
    """
    text = value.removesuffix(",")
    if not text:
        return []
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        raise Refused(
            what="read device addresses",
            subject=repr(value),
            cause="an entry between commas is empty",
            hint="the variable is set by the device plugin; do not set it by hand",
        )
    return entries


def check_resource(resource: str, position: str) -> str:
    """Return the resource name, or Refused with its position when Kubernetes would not take it as an extended resource."""
    domain, slash, name = resource.partition("/")
    reason = ""
    if not slash or "/" in name:
        reason = "it has to be DOMAIN/NAME"
    elif len(domain) > 253 or not _DOMAIN.fullmatch(domain):
        reason = f"{domain!r} is not a lower-case DNS subdomain"
    elif len(name) > 63 or not _NAME.fullmatch(name):
        reason = f"{name!r} has to be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
    elif domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or domain.startswith("requests."):
        reason = f"{domain!r} is reserved by Kubernetes"
    if reason:
        raise Refused(
            what="accept a resource name",
            subject=f"{position}: {resource!r}",
            cause=reason,
            hint="for example nvidia.com/AD102_GEFORCE_RTX_4090",
        )
    return resource


def collisions(resources: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of different resource names that share one environment variable, in order of appearance."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for resource in resources:
        other = first.setdefault(variable("", resource), resource)
        if other != resource and (other, resource) not in pairs:
            pairs.append((other, resource))
    return pairs


def refuse_collisions(resources: Mapping[str, str]) -> None:
    """Raise Refused naming both when two resources would answer in the same variable; resources: how messages name each."""
    for one, two in collisions(resources):
        raise Refused(
            what="accept two resource names",
            subject=" and ".join(sorted((resources[one], resources[two]))),
            cause=f"both become ..._RESOURCE{variable('', one)} in the launcher's environment",
            hint="rename one of them",
        )


def socket_name(resource: str) -> str:
    """Return the file name of the plugin's socket for a resource (design decision 15: never KubeVirt's names)."""
    return f"vfio-passthrough-{resource.replace('/', '_')}.sock"
